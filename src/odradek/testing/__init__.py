"""Tools for tests, Odradek's and its users': simulated brokers in virtual time, and real brokers for any Kafka client.

`simulation` replaces clock, network and disk, and `World` runs brokers and clients on it. `Cluster` runs real brokers
in the test's process, on loopback ports; `servers` starts them as processes. Names are imported at their first use,
because pytest imports this package in every session.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.testing.conditions import eventually
    from odradek.testing.histories import History
    from odradek.testing.in_process.cluster import Cluster
    from odradek.testing.servers.zookeeper import ZookeeperServer
    from odradek.testing.simulation.disk import MemoryDisk, PowerCutError, Survival
    from odradek.testing.simulation.loop import DeadlockError, LivelockError, VirtualLoop
    from odradek.testing.simulation.network import MemoryNetwork
    from odradek.testing.simulation.simulation import Simulation, simulated_runtime
    from odradek.testing.user_code import simulate
    from odradek.testing.wire_client import BlockingWireClient, WireClient
    from odradek.testing.world import World

_HOMES: Final = {
    "BlockingWireClient": "wire_client",
    "Cluster": "in_process.cluster",
    "DeadlockError": "simulation.loop",
    "History": "histories",
    "LivelockError": "simulation.loop",
    "MemoryDisk": "simulation.disk",
    "MemoryNetwork": "simulation.network",
    "PowerCutError": "simulation.disk",
    "Simulation": "simulation.simulation",
    "Survival": "simulation.disk",
    "VirtualLoop": "simulation.loop",
    "WireClient": "wire_client",
    "World": "world",
    "ZookeeperServer": "servers.zookeeper",
    "eventually": "conditions",
    "simulate": "user_code",
    "simulated_runtime": "simulation.simulation",
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
    "simulate",
    "simulated_runtime",
]
