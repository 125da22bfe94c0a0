"""Tools for tests, Odradek's and its users': simulated brokers in virtual time, and real brokers for any Kafka client.

`odradek.simulation` has the simulated ones; `simulate` runs a user's own code on them. `Cluster` runs real brokers in
the test's process, on loopback ports; `servers` starts them as processes. Names are imported at their first use,
because pytest imports this package in every session.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.simulation.histories import History
    from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival
    from odradek.simulation.virtual.loop import DeadlockError, LivelockError, VirtualLoop
    from odradek.simulation.virtual.network import MemoryNetwork
    from odradek.simulation.virtual.simulation import Simulation, simulated_runtime
    from odradek.simulation.wire_client import BlockingWireClient, WireClient
    from odradek.simulation.world import World
    from odradek.testing.conditions import eventually
    from odradek.testing.in_process.cluster import Cluster
    from odradek.testing.servers.zookeeper import ZookeeperServer
    from odradek.testing.user_code import simulate

_HOMES: Final = {
    "BlockingWireClient": "odradek.simulation.wire_client",
    "Cluster": "odradek.testing.in_process.cluster",
    "DeadlockError": "odradek.simulation.virtual.loop",
    "History": "odradek.simulation.histories",
    "LivelockError": "odradek.simulation.virtual.loop",
    "MemoryDisk": "odradek.simulation.virtual.disk",
    "MemoryNetwork": "odradek.simulation.virtual.network",
    "PowerCutError": "odradek.simulation.virtual.disk",
    "Simulation": "odradek.simulation.virtual.simulation",
    "Survival": "odradek.simulation.virtual.disk",
    "VirtualLoop": "odradek.simulation.virtual.loop",
    "WireClient": "odradek.simulation.wire_client",
    "World": "odradek.simulation.world",
    "ZookeeperServer": "odradek.testing.servers.zookeeper",
    "eventually": "odradek.testing.conditions",
    "simulate": "odradek.testing.user_code",
    "simulated_runtime": "odradek.simulation.virtual.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


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
