"""Plays a script of clicks on one group of each generation: a value with each step in words, and what it cost.

`worker` plays scripts for the page, in a process of its own.
"""

from odradek.lab.player.script import Script, parse_script
from odradek.lab.player.steps import Message, Play, Step

__all__ = ["Message", "Play", "Script", "Step", "parse_script"]
