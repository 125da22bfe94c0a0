"""`odradek lab`: `commands` has assign, compare, explain and what-if; `generations` and `replay` have their modules."""

from odradek.cli.lab.commands import command

__all__ = ["command"]
