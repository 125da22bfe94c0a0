"""`odradek bench groups requests`: heartbeats and commits per second of broker CPU, beside Apache Kafka."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from bench.clients.processes import run_client
from bench.measure import Aim, Row, rounds
from bench.peers.servers import Server
from odradek.clients import Admin

AT_LEAST_KAFKAS: Final = Aim(1)
_MOST_OFFSETS: Final = 10
_WHAT: Final[Mapping[str, Mapping[str, int]]] = {
    "ConsumerGroupHeartbeat": {"partitions": 0, "is_consumer": True},
    "Heartbeat": {"partitions": 0},
    "commits of 1 offset": {"partitions": 1},
    "commits of 10 offsets": {"partitions": _MOST_OFFSETS},
}

REQUESTS: Final = tuple(_WHAT)


def request_rows(
    servers: Sequence[Server], load: Mapping[str, float], *, warm_up_s: float, count: int, only: Sequence[str] = ()
) -> Iterator[Row]:
    """Warm up both brokers, then measure requests per second, and per second of broker CPU.

    `load` are arguments of the workload `group_requests`; `only` are names in `REQUESTS`, empty for all.
    """
    ours, peer = (server.name for server in servers)
    for what, kind in _WHAT.items():
        if only and what not in only:
            continue
        for server in servers:
            _run(server, {**load, **kind, "seconds": warm_up_s})
        asked = {**load, **kind}
        figures = rounds(count, {server.name: partial(_run, server, asked) for server in servers})
        for name, unit in (("per_core_second", "per s of broker CPU"), ("per_second", "per s")):
            values = {side: by[name] for side, by in figures.items()}
            aim = AT_LEAST_KAFKAS if name == "per_core_second" else None
            yield Row(what=what, unit=unit, figures=values, of=ours, to=peer, aim=aim)


def _run(server: Server, asked: Mapping[str, float]) -> dict[str, float]:
    topic = f"requests-{uuid.uuid4().hex}"
    asyncio.run(_create(server, topic))
    where = {"bootstrap_servers": server.bootstrap_servers, "pid": server.pid, "topic": topic}
    return run_client("group_requests", {**where, **asked})


async def _create(server: Server, topic: str) -> None:
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=_MOST_OFFSETS)
