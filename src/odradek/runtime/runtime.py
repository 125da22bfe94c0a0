"""The four together, as one value to hand down."""

from odradek.model.values import dataclass
from odradek.runtime.clock import Clock, SystemClock
from odradek.runtime.disk import Disk, SystemDisk
from odradek.runtime.entropy import Entropy, system_entropy
from odradek.runtime.network import Network, SystemNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """All that a process has of the outside."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network


def system_runtime() -> Runtime:
    """The machine's own."""
    return Runtime(clock=SystemClock(), entropy=system_entropy(), disk=SystemDisk(), network=SystemNetwork())
