"""`bench groups`: how long rebalances take beside Apache Kafka, and what they cost."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import click

from bench.clients.members import HEARTBEAT_S, HeadlessGroup
from bench.measure import Aim, Row, cpu_seconds, print_rows, rounds
from bench.peers.servers import Server
from bench.peers.sides import kafka_side, odradek_side
from odradek.clients import Admin
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.runtime import SystemNetwork
from odradek.testing.wire_client import WireClient

AT_MOST_KAFKAS: Final = Aim(1, at_most=True)
_OPTIONS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
_UNITS: Final = {"s": "s to stable", "unowned": "partition-seconds without an owner", "cpu": "CPU s of the broker"}
_BEATS_S: Final = 3.0
_LOAD_S: Final = 60.0


@click.command()
@click.option("--members", "counts", default=(10, 100), multiple=True, show_default=True, help="May be repeated.")
@click.option("--partitions", default=1_000, show_default=True, help="Partitions that the members share.")
@click.option("--rounds", "count", default=3, show_default=True, help="Times each side runs; medians are shown.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def groups(counts: Sequence[int], partitions: int, count: int, *, as_json: bool) -> None:
    """Rebalance a group of headless members: one joins, one leaves, a tenth dies; and their heartbeats' cost."""
    with ExitStack() as stack:
        sides = (odradek_side(), kafka_side())
        servers = [stack.enter_context(side.server(_OPTIONS)) for side in sides]
        rows = []
        for members in counts:
            runs = {server.name: partial(_measure, server, members, partitions) for server in servers}
            figures = rounds(count, runs)
            for name in figures[servers[0].name]:
                event, _, unit = name.partition(":")
                values = {side: by[name] for side, by in figures.items()}
                ours, peer = (server.name for server in servers)
                what = f"{members} members: {event}"
                rows.append(Row(what=what, unit=_UNITS[unit], figures=values, of=ours, to=peer, aim=AT_MOST_KAFKAS))
    print_rows(f"groups on {partitions} partitions, heartbeats every 100 ms", rows, as_json=as_json)


def _measure(server: Server, members: int, partitions: int) -> dict[str, float]:
    return asyncio.run(_rebalance(server, members, partitions))


async def _rebalance(server: Server, members: int, partitions: int) -> dict[str, float]:
    topic = f"groups-{uuid.uuid4().hex}"
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=partitions)
    group_id = f"g-{uuid.uuid4().hex}"
    await _find_coordinator(server, group_id)
    group = HeadlessGroup(server.bootstrap_servers, group_id, topic, partitions)
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

    async def a_tenth_dies() -> None:
        for _ in range(max(members // 10, 1)):
            await group.members.pop().die()

    try:
        await group.add(members)
        await group.until_stable()
        await timed("one joins", partial(group.add, 1))
        await timed("one leaves", one_leaves)
        cpu_s = cpu_seconds(server.pid)
        await asyncio.sleep(_BEATS_S)
        figures["3 s of heartbeats:cpu"] = cpu_seconds(server.pid) - cpu_s
        await timed("a tenth dies (session 6 s)", a_tenth_dies)
    finally:
        await group.close()
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.delete_topics([topic])
    return figures


async def _find_coordinator(server: Server, group_id: str) -> None:
    """Return when the group has a coordinator that has loaded it."""
    host, port = server.bootstrap_servers.rsplit(":", 1)
    client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="bench")
    stranger = {"group_id": group_id, "generation_id": 0, "member_id": "-"}
    async with asyncio.timeout(_LOAD_S):
        while (await client.ask(ApiKey.HEARTBEAT, stranger, 3)).error_code != ErrorCode.unknown_member_id:
            await client.ask(ApiKey.FIND_COORDINATOR, {"key": group_id, "key_type": 0}, 3)
            await asyncio.sleep(HEARTBEAT_S)
    client.transport.abort()
