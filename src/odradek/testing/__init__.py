"""Tools for tests, ours and our users': virtual time, a network and a disk in memory, a cluster in this process.

`Simulation` and its parts run a program without the machine; `World` has brokers and clients in a simulation;
`Cluster` is a real one, on loopback ports, for clients of any kind. Names are imported at their first use, since
pytest imports this package in every session.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster
    from odradek.testing.conditions import eventually
    from odradek.testing.disk import MemoryDisk, PowerCutError, Survival
    from odradek.testing.histories import History
    from odradek.testing.loop import DeadlockError, LivelockError, VirtualLoop
    from odradek.testing.network import MemoryNetwork
    from odradek.testing.simulation import Simulation, simulated_runtime
    from odradek.testing.wire_client import BlockingWireClient, WireClient
    from odradek.testing.world import World
    from odradek.testing.zookeeper import ZookeeperServer

_HOMES: Final = {
    "BlockingWireClient": "wire_client",
    "Cluster": "cluster",
    "DeadlockError": "loop",
    "History": "histories",
    "LivelockError": "loop",
    "MemoryDisk": "disk",
    "MemoryNetwork": "network",
    "PowerCutError": "disk",
    "Simulation": "simulation",
    "Survival": "disk",
    "VirtualLoop": "loop",
    "WireClient": "wire_client",
    "World": "world",
    "ZookeeperServer": "zookeeper",
    "eventually": "conditions",
    "simulated_runtime": "simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "BlockingWireClient",
    "Cluster",
    "DeadlockError",
    "History",
    "LivelockError",
    "MemoryDisk",
    "MemoryNetwork",
    "PowerCutError",
    "Simulation",
    "Survival",
    "VirtualLoop",
    "WireClient",
    "World",
    "ZookeeperServer",
    "eventually",
    "simulated_runtime",
]
