"""The readings that views share: topics, brokers, log directories, offsets, groups; and the brokers that are silent."""

import asyncio
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Final

from msgspec import Struct

from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription, TopicDescription
from odradek.clients.admin.health import ClusterState, LogDirs, cluster_state
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.metadata import NO_LEADER
from odradek.clients.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from odradek.model import KafkaError, TopicPartition
from odradek.page.view import PageRequest

_SILENT_S: Final = 4.5
_ANSWER: Final = "answer"
_MOST_REQUESTED: Final = 500
"""Limit of the partitions of a request: the broker reads from disk for a time, about 50 µs for each."""


class Offsets(Struct, frozen=True):
    """The first offset, the end offset and the greatest time of a partition's messages; None where one is unknown."""

    first: int | None = None
    end: int | None = None
    written_ms: int | None = None


class TopicRow(Struct, frozen=True, kw_only=True):
    """A topic in the list; `size_bytes` is that of all replicas. None means unknown."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    out_of_sync: int
    size_bytes: int | None
    messages: int | None = None
    written_ms: int | None = None
    """The greatest time of a message."""


class Overview:
    """A state of the cluster; the rows of its topics are computed when they are needed."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    @cached_property
    def topics(self) -> Sequence[TopicRow]:
        """All topics, including internal ones."""
        sizes = sizes_of(self.state.log_dirs)
        return [
            TopicRow(
                name=each.name,
                is_internal=each.is_internal,
                partitions=len(each.partitions),
                replication_factor=each.replication_factor,
                out_of_sync=sum(len(one.isr) < len(one.replicas) for one in each.partitions.values()),
                size_bytes=None
                if sizes is None
                else sum(sizes.get(TopicPartition(each.name, n), 0) for n in each.partitions),
            )
            for each in self.state.topics
        ]


def slow_s(asked: PageRequest) -> float:
    """Return the interval of log directories and offsets, whose answers have an entry for each partition."""
    return 5 * asked.settings.interval_s


async def overview(asked: PageRequest) -> Overview:
    """Return the state of the cluster, at most one interval old, or some seconds while a broker does not answer."""

    async def log_dirs_of(brokers: Sequence[int]) -> LogDirs:
        answers = [asked.known((_ANSWER, each), partial(_answer, broker_id=each), 1.0) for each in brokers]
        log_dirs, _ = await asyncio.gather(read_log_dirs(asked, brokers, slow_s(asked)), asyncio.gather(*answers))
        return log_dirs

    async def read(admin: Admin) -> Overview:
        return Overview(await cluster_state(admin, log_dirs_of))

    return await asked.latest("overview", read)


async def _answer(admin: Admin, broker_id: int) -> None:
    with suppress(KafkaError):  # which is an answer
        await admin.describe_broker_versions(broker_id)


def silent_brokers(asked: PageRequest, brokers: Sequence[int]) -> dict[int, int]:
    """Return for how many seconds brokers have been silent from which `overview` has requested an answer."""
    silent_s = {each: asked.silent_s((_ANSWER, each)) for each in brokers}
    return {each: round(seconds) for each, seconds in silent_s.items() if seconds >= _SILENT_S}


async def read_log_dirs(
    asked: PageRequest, brokers: Sequence[int], interval_s: float, partitions: Sequence[TopicPartition] | None = None
) -> LogDirs:
    """Return the log directories of each broker, None where they are unknown, with logs of `partitions` or all."""

    async def read(admin: Admin, broker_id: int) -> Sequence[LogDirDescription]:
        return await admin.describe_log_dirs(broker_id, partitions)

    readings = [
        asked.known(("log directories", each, *(partitions or ())), partial(read, broker_id=each), interval_s)
        for each in brokers
    ]
    return dict(zip(brokers, await asyncio.gather(*readings), strict=True))


async def read_offsets(
    asked: PageRequest, topics: Iterable[TopicDescription], interval_s: float
) -> Mapping[TopicPartition, Offsets]:
    """Return the offsets of all partitions, as far as their leaders answer in time and show them to the user."""
    topics, led = list(topics), dict[int, list[TopicPartition]]()
    for topic in topics:
        for number, each in topic.partitions.items():
            if each.leader != NO_LEADER:
                led.setdefault(each.leader, []).append(TopicPartition(topic.name, number))

    async def of_leader(kind: int, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        async def read(admin: Admin) -> dict[TopicPartition, int]:
            found: dict[TopicPartition, OffsetAndTimestamp] = {}
            for start in range(0, len(wanted), _MOST_REQUESTED):
                found |= await admin.list_offsets(dict.fromkeys(wanted[start : start + _MOST_REQUESTED], kind))
            return {key: each.timestamp if kind == MAX_TIMESTAMP else each.offset for key, each in found.items()}

        return await asked.known(("offsets", kind, *wanted), read, interval_s) or {}

    async def of_all(kind: int) -> ChainMap[TopicPartition, int]:
        return ChainMap(*await asyncio.gather(*(of_leader(kind, wanted) for wanted in led.values())))

    first, end, written = await asyncio.gather(*map(of_all, (EARLIEST, LATEST, MAX_TIMESTAMP)))
    keys = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    return {key: Offsets(first.get(key), end.get(key), written.get(key)) for key in keys}


def counted(offsets: Mapping[TopicPartition, Offsets], topic: TopicDescription) -> tuple[int | None, int | None]:
    """Return the offsets in a topic's log and the greatest time of its messages; None where one is unknown."""
    known = [offsets[TopicPartition(topic.name, number)] for number in topic.partitions]
    counts = [each.end - each.first for each in known if each.end is not None and each.first is not None]
    times = [each.written_ms for each in known if each.written_ms is not None]
    return sum(counts) if len(counts) == len(known) else None, max(times, default=None)


async def read_groups(admin: Admin, group_ids: Sequence[str]) -> list[GroupDescription]:
    """Return those of the groups that can be described."""
    found = (await admin.describe_groups(group_ids)).values() if group_ids else ()
    return [each for each in found if isinstance(each, GroupDescription)]


def sizes_of(log_dirs: LogDirs) -> dict[TopicPartition, int] | None:
    """Return the bytes of all replicas of each partition; None if no broker returns them."""
    known = [each for directories in log_dirs.values() if directories is not None for each in directories]
    found: dict[TopicPartition, int] = {}
    for directory in known:
        for key, size in directory.sizes.items():
            found[key] = found.get(key, 0) + size
    return found if known else None
