"""The check that nothing grows without bound: at rest, each container has a size that follows from the world.

All faults and clients have ended. Members of groups and sessions of clients may first have to expire.
Timers are not counted: those of killed brokers stay in the loop of a simulation.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from odradek.broker.lifecycle import Broker
from odradek.broker.log.log import Log
from odradek.broker.serving.response_cache import MOST_CACHED_BYTES
from odradek.simulation.promises import PATIENCE_S
from odradek.simulation.world import World, until

_CONNECTIONS: Final = 6
"""Connections of one broker to another, or to itself if it is alone, beside those of its fetchers: of the controller,
detectors and coordinators."""
_TASKS: Final = 20
"""Tasks of one broker, beside those of its connections and fetchers."""
_WATCHES: Final = 4
"""Watches of one broker on the data or the children of one node of the tree."""
_FILES: Final = 10
"""Open files of one broker, beside those of its segments."""


async def bounded(world: World) -> list[str]:
    """Let virtual time pass until every size is within its bound, and return the sizes that never are."""
    with suppress(TimeoutError):
        await until(lambda: not _excess(world), within_s=PATIENCE_S)
    return _excess(world)


def _excess(world: World) -> list[str]:
    return [f"{what}: {size}, at most {bound}" for what, size, bound in sizes(world) if size > bound]


def sizes(world: World) -> Iterator[tuple[str, int, int]]:
    others = len(world.hosts) - 1
    for number, broker in world.running.items():
        fetchers = others * broker.config.num_replica_fetchers
        for what, size, bound in (
            ("connections", len(broker.server.sessions), fetchers + max(others, 1) * _CONNECTIONS),
            ("parked requests", len(broker.purgatory), fetchers),
            ("fetch sessions", len(broker.fetch_sessions), broker.config.max_incremental_fetch_session_cache_slots),
            ("changes of an ISR", broker.alter_partition_manager.pending, 0),
            ("transactions without markers", broker.transactions.markers.pending, 0),
            ("members of groups", _members(broker), 0),
            ("waiting requests of coordinators", _waiting(broker), 0),
            ("watches of one node", world.store(number).watches.most_of_a_node(), _WATCHES),
            ("open files", world.simulation.disk(world.hosts[number]).open_files, 3 * _segments(broker) + _FILES),
            ("producers of one log", _producers(broker), world.producers_made),
            ("bytes of cached responses", _cached_bytes(broker), MOST_CACHED_BYTES),
        ):
            yield f"broker {number} has {what}", size, bound
    yield "there are tasks", len(asyncio.all_tasks()), len(world.hosts) * _TASKS


def _members(broker: Broker) -> int:
    machines = broker.groups.machines(only_active=True)
    return sum(int(not group.is_empty) for machine in machines for group in machine.groups.by_id.values())


def _waiting(broker: Broker) -> int:
    runtimes = (broker.groups, broker.transactions.runtime)
    return sum(len(context._requests) for each in runtimes for context in each.contexts(only_active=True))


def _cached_bytes(broker: Broker) -> int:
    return sum(len(each.body) for each in broker.response_cache._responses.values())


def _segments(broker: Broker) -> int:
    return sum(len(log.segments) for log in _logs(broker))


def _producers(broker: Broker) -> int:
    return max((len(log.producers.entries) for log in _logs(broker)), default=0)


def _logs(broker: Broker) -> list[Log]:
    return [log for each in broker.logs if (log := broker.logs.get(each)) is not None]
