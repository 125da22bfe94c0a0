"""`odradek groups`: `commands` has list, describe and delete; each other command has a module of its own."""

from odradek.cli.groups.commands import command

__all__ = ["command"]
