"""The bundle of clock, entropy, disk and network that a process passes down."""

from msgspec import Struct, field

from odradek.runtime.clock import Clock, SystemClock
from odradek.runtime.disk import Disk, SystemDisk
from odradek.runtime.entropy import Entropy, system_entropy
from odradek.runtime.network import Network, SystemNetwork
from odradek.runtime.threads import LazyThread, ThreadTicker, Ticker, Worker


class Runtime(Struct, frozen=True, kw_only=True):
    """The clock, randomness, disk, network and workers of a process."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network
    ticker: Ticker = field(default_factory=ThreadTicker)
    """Renews sessions with the metadata tree while the event loop is busy."""
    worker: Worker = field(default_factory=lambda: LazyThread("odradek-worker"))
    """Runs computations that would hold the event loop for too long."""
    checker: Worker = field(default_factory=lambda: LazyThread("odradek-checker"))
    """Checks and recompresses record batches: one may take many seconds."""


def system_runtime() -> Runtime:
    """Return the operating system's implementations."""
    return Runtime(clock=SystemClock(), entropy=system_entropy(), disk=SystemDisk(), network=SystemNetwork())
