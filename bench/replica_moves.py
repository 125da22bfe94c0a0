"""`odradek bench moves`: a throttled reassignment, and a move between directories, beside Apache Kafka."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from bench.measure import Aim, Row, print_rows, rounds
from bench.peers.clusters import kafka_cluster_side, odradek_cluster_side
from bench.peers.kafka_peer import KafkaBroker
from bench.peers.sides import OPTIONS
from bench.progress import progress
from odradek.clients import Admin, Producer
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.config.altering import Alteration, AlterOperation
from odradek.testing.servers.server_process import AnnouncingProcess, ServerProcess

_MIB: Final = 1024 * 1024
_SESSION_MS: Final = 9000
_RECORD_BYTES: Final = 100_000
_IN_FLIGHT: Final = 200
_PACE_S: Final = 0.005
_MOVED: Final = ("moved", 0)
_MOST_S: Final = 600
_FEWEST_S: Final = 5


class _DirectoriesSide(Struct, frozen=True):
    name: str
    make: Callable[[Path, str], tuple[ServerProcess, Callable[[], str]]]


@click.command(name="moves")
@click.option("--mib", type=click.IntRange(16), default=256, show_default=True, help="What a replica holds.")
@click.option("--rate", type=click.IntRange(1), default=10, show_default=True, help="The throttle in MiB/s.")
@click.option("--rounds", "count", type=click.IntRange(1), default=1, show_default=True, help="Times each side runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def moves(mib: int, rate: int, count: int, *, as_json: bool) -> None:
    """Move a replica to another broker at a throttled rate, and to another directory without one, beside Kafka.

    The rate is what DescribeLogDirs tells each second, without the first and the last one. While a log moves between
    directories, another partition gets 200 records of 1 kB a second, each acknowledged before the next.
    """
    if mib < _FEWEST_S * rate:
        raise click.UsageError(
            f"--mib is at least {_FEWEST_S} times --rate: the first and the last second do not count"
        )
    with progress() as say:
        throttled: dict[str, dict[str, float]] = {}
        between: dict[str, dict[str, float]] = {}
        for cluster in (odradek_cluster_side(), kafka_cluster_side()):
            with cluster.cluster(2, _SESSION_MS) as brokers:
                run = _run(_throttled, brokers.bootstrap_servers, mib, rate)
                throttled |= rounds(count, {cluster.name: run}, say=lambda each: say(f"throttled: {each}"))
        for side in (_DirectoriesSide("odradek", _odradek), _DirectoriesSide("kafka", _kafka)):
            with tempfile.TemporaryDirectory(prefix="odradek-bench-moves-", ignore_cleanup_errors=True) as folder:
                process, address = side.make(Path(folder), f"{folder}/a,{folder}/b")
                with process:
                    run = _run(_between, address(), mib)
                    between |= rounds(count, {side.name: run}, say=lambda each: say(f"between directories: {each}"))
    rows = [_row(f"throttled to {rate} MiB/s, {what}", "MiB/s", what, throttled) for what in throttled["odradek"]]
    rows += [
        _row("between directories", "MiB/s", "rate", between, Aim(1)),
        *(_row(f"meanwhile, produce {each}", "times alone", each, between) for each in ("p50", "p99")),
        *(_row(f"alone, produce {each}", "ms", f"{each} alone", between) for each in ("p50", "p99")),
    ]
    title = f"a replica of {mib} MiB moves: {count} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print_rows(title, rows, as_json=as_json)


def _row(what: str, unit: str, name: str, by: Mapping[str, Mapping[str, float]], aim: Aim | None = None) -> Row:
    figures = {side: some[name] for side, some in by.items()}
    return Row(what=what, unit=unit, figures=figures, of="odradek", to="kafka", aim=aim)


def _run(measure: Callable[..., object], *arguments: object) -> Callable[[], Mapping[str, float]]:
    return lambda: asyncio.run(measure(*arguments))  # type: ignore[arg-type]


def _odradek(folder: Path, directories: str) -> tuple[ServerProcess, Callable[[], str]]:
    script = str(Path(sys.executable).with_name("odradek"))
    options = [flag for key, value in {**OPTIONS, "log.dirs": directories}.items() for flag in ("-o", f"{key}={value}")]
    tree = ("--metadata", f"sqlite:///{folder}/metadata.sqlite")
    command = [script, "serve", "--listen", "127.0.0.1:0", *tree, *options]
    process = AnnouncingProcess("odradek serve", command, prefix="ready: ", log=folder / "err")
    return process, lambda: process.announced


def _kafka(folder: Path, directories: str) -> tuple[ServerProcess, Callable[[], str]]:
    broker = KafkaBroker(folder / "kafka", options={**OPTIONS, "log.dirs": directories})
    return broker, lambda: broker.bootstrap_servers


@asynccontextmanager
async def _filled(servers: str, mib: int, *more: str) -> AsyncIterator[Admin]:
    async with Admin(servers) as admin:
        for topic in (_MOVED[0], *more):
            await admin.create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(servers, batch_size=1_000_000, linger_ms=5, acks="all") as producer:
            waiting = []
            for _ in range(mib * _MIB // _RECORD_BYTES):
                waiting.append(await producer.send(_MOVED[0], bytes(_RECORD_BYTES), partition=0))
                if len(waiting) >= _IN_FLIGHT:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
        try:
            yield admin
        finally:
            await admin.delete_topics([_MOVED[0], *more])


async def _throttled(servers: str, mib: int, rate: int) -> Mapping[str, float]:
    async with _filled(servers, mib) as admin:
        source = (await admin.describe_topics([_MOVED[0]]))[_MOVED[0]].partitions[0].leader
        target = 1 - source
        topic = {"leader.replication.throttled.replicas": f"0:{source}"}
        topic["follower.replication.throttled.replicas"] = f"0:{target}"
        await _alter(admin, ConfigResourceType.TOPIC, _MOVED[0], topic)
        for broker in (source, target):
            rates = {f"{side}.replication.throttled.rate": str(rate * _MIB) for side in ("leader", "follower")}
            await _alter(admin, ConfigResourceType.BROKER, str(broker), rates)
        await asyncio.sleep(2)
        await admin.alter_partition_reassignments({_MOVED: [target]})
        began, seconds, sizes = time.monotonic(), 0, [0.0]
        while sizes[-1] < mib * 0.99 and seconds < _MOST_S:
            seconds += 1
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
            held = await admin.describe_log_dirs(target, [_MOVED])
            sizes.append(
                sum(size for each in held for size in (*each.sizes.values(), *each.future_sizes.values())) / _MIB
            )
        assert sizes[-1] >= mib * 0.99, f"the replica has {sizes[-1]:.0f} of {mib} MiB after {seconds} s"
        rates_seen = [later - sooner for sooner, later in pairwise(sizes)][1:-1]
        return {
            "mean": statistics.fmean(rates_seen),
            "the least of a second": min(rates_seen),
            "the most of a second": max(rates_seen),
            "standard deviation": statistics.pstdev(rates_seen),
        }


async def _between(servers: str, mib: int) -> Mapping[str, float]:
    async with _filled(servers, mib, "paced") as admin:
        here, there = "", ""
        for each in await admin.describe_log_dirs(0):
            here, there = (each.log_dir, there) if _MOVED in each.sizes else (here, each.log_dir)
        await asyncio.sleep(3)
        async with _paced(servers) as alone:
            await asyncio.sleep(7)
        async with _paced(servers) as beside, asyncio.timeout(_MOST_S):
            began = time.monotonic()
            for directory in (there, here, there):
                await admin.alter_replica_log_dirs(0, {_MOVED: directory})
                while not await _holds(admin, directory):  # noqa: ASYNC110 - a broker tells no one when a move ends
                    await asyncio.sleep(0.05)
            seconds = time.monotonic() - began
        parts = {"p50": 0.5, "p99": 0.99}
        return {
            "rate": 3 * mib / seconds,
            **{name: _part(beside, share) / _part(alone, share) for name, share in parts.items()},
            **{f"{name} alone": _part(alone, share) for name, share in parts.items()},
        }


async def _holds(admin: Admin, directory: str) -> bool:
    return any(each.log_dir == directory and _MOVED in each.sizes for each in await admin.describe_log_dirs(0))


async def _alter(admin: Admin, kind: ConfigResourceType, name: str, keys: Mapping[str, str]) -> None:
    changes = [Alteration(name=key, operation=AlterOperation.SET, value=value) for key, value in keys.items()]
    await admin.alter_configs(ConfigResource(type=kind, name=name), changes)


@asynccontextmanager
async def _paced(servers: str) -> AsyncIterator[list[float]]:
    """Yield the milliseconds of each record that is produced meanwhile, after a second whose records do not count."""
    milliseconds: list[float] = []

    async def pace() -> None:
        async with Producer(servers, acks="all", linger_ms=0) as producer:
            due = time.monotonic()
            while True:
                due += _PACE_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                began = time.monotonic()
                await (await producer.send("paced", bytes(1000), partition=0))
                milliseconds.append((time.monotonic() - began) * 1000)

    task = asyncio.create_task(pace())
    try:
        await asyncio.sleep(1)
        milliseconds.clear()
        yield milliseconds
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _part(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
