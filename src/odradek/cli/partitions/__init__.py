"""`odradek partitions`: `commands` has describe and elect; `reassign`, `records` and `producers` have the others."""

from odradek.cli.partitions.commands import command

__all__ = ["command"]
