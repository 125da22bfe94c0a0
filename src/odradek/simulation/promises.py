"""The limits within which a simulated cluster must recover, and the error that says that it broke a promise."""

from collections.abc import Mapping
from typing import Any, Final

from odradek.clients.setting_types import ClientConfig

BROKERS: Final = 3
"""The fewest brokers of a cluster, and the replicas of most topics."""
PATIENCE_S: Final = 300.0
"""Virtual seconds after which a cluster without faults, or a client of it, counts as stuck."""
CLIENTS: Final[ClientConfig] = {"request_timeout_ms": 4_000, "metadata_max_age_ms": 10_000}
"""Settings of all clients, so that they notice faults within the length of a schedule."""
READERS: Final[Mapping[str, Any]] = {**CLIENTS, "fetch_max_wait_ms": 1_500}
"""Settings of consumers. Long polls that return nothing take computing time and find nothing."""


class BrokenPromiseError(AssertionError):
    """The cluster broke a promise; the message names it."""
