"""`odradek brokers`: `commands` has list, describe and unregister; `drain` and `details` have the others."""

from odradek.cli.brokers.commands import command

__all__ = ["command"]
