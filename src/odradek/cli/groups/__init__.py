"""`odradek groups`: `commands` has list, describe, members, offsets and delete; other modules have the others."""

from odradek.cli.groups.commands import command

__all__ = ["command"]
