"""The former place of `odradek.simulation.transaction_histories`."""

from odradek.simulation.transaction_histories import *  # noqa: F403
