"""The former place of `odradek.simulation.world`."""

from odradek.simulation.world import *  # noqa: F403
