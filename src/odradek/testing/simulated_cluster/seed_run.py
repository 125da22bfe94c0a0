"""The former place of `odradek.simulation.seed_run`."""

from odradek.simulation.seed_run import *  # noqa: F403
