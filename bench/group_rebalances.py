"""`odradek bench groups rebalances`: the duration and cost of rebalances, beside Apache Kafka."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

from bench.clients.consumer_members import ConsumerHeadlessMember
from bench.clients.members import HeadlessGroup, await_coordinator
from bench.measure import Aim, Row, cpu_seconds, rounds
from bench.peers.servers import Server
from odradek.clients import Admin

AT_MOST_KAFKAS: Final = Aim(1, at_most=True)
COOPERATIVE: Final = "cooperative"
CONSUMER: Final = "consumer"
ASSIGNORS: Final = ("eager", COOPERATIVE, CONSUMER)
"""The rebalance protocols: two of the classic protocol, and the consumer protocol (KIP-848)."""
_UNITS: Final = {"s": "s to stable", "unowned": "partition-seconds without an owner", "cpu": "CPU s of the broker"}
_BEATS_S: Final = 3.0


def rebalance_rows(
    servers: Sequence[Server], members: int, partitions: int, assignor: str, restarts: int | None, count: int
) -> Iterator[Row]:
    """Measure a group's rebalances and heartbeats. `restarts` is the number of members to restart; None means all."""
    ours, peer = (server.name for server in servers)
    how_many = members if restarts is None else min(restarts, members)
    measure = partial(_measure, members=members, partitions=partitions, assignor=assignor, restarts=how_many)
    figures = rounds(count, {server.name: partial(measure, server) for server in servers})
    for name in figures[ours]:
        event, _, unit = name.partition(":")
        values = {side: by[name] for side, by in figures.items()}
        what = f"{members} members: {event}"
        yield Row(what=what, unit=_UNITS[unit], figures=values, of=ours, to=peer, aim=AT_MOST_KAFKAS)


def _measure(server: Server, *, members: int, partitions: int, assignor: str, restarts: int) -> dict[str, float]:
    return asyncio.run(_rebalance(server, members, partitions, assignor, restarts))


async def _rebalance(server: Server, members: int, partitions: int, assignor: str, restarts: int) -> dict[str, float]:
    topic = f"groups-{uuid.uuid4().hex}"
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=partitions)
    group_id = f"g-{uuid.uuid4().hex}"
    await await_coordinator(server.bootstrap_servers, group_id)
    group = HeadlessGroup(server.bootstrap_servers, group_id, topic, partitions, is_cooperative=assignor == COOPERATIVE)
    if assignor == CONSUMER:
        group.new_member = ConsumerHeadlessMember
    figures: dict[str, float] = {}

    async def timed(event: str, work: Callable[[], Awaitable[None]]) -> None:
        group.unowned_partition_s = 0.0
        cpu_s, started_s = cpu_seconds(server.pid), time.monotonic()
        await work()
        await group.until_stable()
        figures[f"{event}:s"] = time.monotonic() - started_s
        figures[f"{event}:unowned"] = group.unowned_partition_s
        figures[f"{event}:cpu"] = cpu_seconds(server.pid) - cpu_s

    async def one_leaves() -> None:
        await group.members.pop().leave()

    async def restart() -> None:
        for _ in range(restarts):
            await group.members.pop(0).leave()
            await group.add(1)
            await group.until_stable()

    async def a_tenth_dies() -> None:
        for _ in range(max(members // 10, 1)):
            await group.members.pop().die()

    try:
        await group.add(members)
        await group.until_stable()
        await timed("one joins", partial(group.add, 1))
        await timed("one leaves", one_leaves)
        who = "all" if restarts == members else f"{restarts:,}"
        await timed(f"{who} restart, one by one", restart)
        cpu_s = cpu_seconds(server.pid)
        await asyncio.sleep(_BEATS_S)
        figures["3 s of heartbeats:cpu"] = cpu_seconds(server.pid) - cpu_s
        await timed("a tenth dies (session 6 s)", a_tenth_dies)
    finally:
        await group.close()
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.delete_topics([topic])
    return figures
