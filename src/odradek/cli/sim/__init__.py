"""`odradek sim`: `commands` has the command, `seeds` plays many, `failures` prints and draws what was found."""

from odradek.cli.sim.commands import command

__all__ = ["command"]
