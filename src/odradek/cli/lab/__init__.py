"""`odradek lab`: `commands` has assign, compare, explain and what-if; `generations` has a module of its own."""

from odradek.cli.lab.commands import command

__all__ = ["command"]
