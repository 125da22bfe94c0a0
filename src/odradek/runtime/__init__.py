"""Interfaces to time, randomness, disk and network, and their implementations by the operating system.

Other packages take a `Runtime` instead of calling `time`, `random`, `os` or `socket`. `odradek.simulation.virtual`
implements the same interfaces with virtual time and with a disk and a network in memory, where a seed decides every
order.
"""

from odradek.runtime.clock import Clock, SystemClock
from odradek.runtime.disk import Disk, DiskLock, DiskSpace, File, SystemDisk
from odradek.runtime.entropy import Entropy, new_id, system_entropy, uuid4
from odradek.runtime.network import Listener, ListenOptions, Network, SystemNetwork
from odradek.runtime.runtime import Runtime, system_runtime

__all__ = [
    "Clock",
    "Disk",
    "DiskLock",
    "DiskSpace",
    "Entropy",
    "File",
    "ListenOptions",
    "Listener",
    "Network",
    "Runtime",
    "SystemClock",
    "SystemDisk",
    "SystemNetwork",
    "new_id",
    "system_entropy",
    "system_runtime",
    "uuid4",
]
