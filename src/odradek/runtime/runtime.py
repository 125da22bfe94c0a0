"""The bundle of clock, entropy, disk and network that a process passes down."""

from msgspec import Struct

from odradek.runtime.clock import Clock, SystemClock
from odradek.runtime.disk import Disk, SystemDisk
from odradek.runtime.entropy import Entropy, system_entropy
from odradek.runtime.network import Network, SystemNetwork


class Runtime(Struct, frozen=True, kw_only=True):
    """The clock, randomness, disk and network of a process."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network


def system_runtime() -> Runtime:
    """Return the operating system's implementations."""
    return Runtime(clock=SystemClock(), entropy=system_entropy(), disk=SystemDisk(), network=SystemNetwork())
