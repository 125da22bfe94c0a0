"""The former place of `odradek.simulation.histories`."""

from odradek.simulation.histories import *  # noqa: F403
