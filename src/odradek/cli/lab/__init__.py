"""`odradek lab`: `commands` has assign, compare, explain and what-if; the other commands have modules of their own."""

from odradek.cli.lab.commands import command

__all__ = ["command"]
