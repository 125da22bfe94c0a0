"""`odradek sim`: `commands` has the command, `seeds` plays many seeds, `failures` prints and draws their failures."""

from odradek.cli.sim.commands import command

__all__ = ["command"]
