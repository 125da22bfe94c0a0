"""The readings that views share: topics, brokers, log directories, offsets; and the brokers that are silent."""

import asyncio
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from odradek.clients import Admin
from odradek.clients.admin.descriptions import TopicDescription
from odradek.clients.admin.health import ClusterState, LogDirs, cluster_state, read_log_dirs
from odradek.clients.metadata import NO_LEADER
from odradek.clients.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.page.sessions import Session
from odradek.page.view import PageRequest

_SILENT_S: Final = 4.5
_CLOSE_S: Final = 2.0
"""The longest silence before a request that counts: looks may be further apart."""
_UNWATCHED_S: Final = 15.0
"""After a longer time without a look, an answer that was missing then says nothing about now."""
SLOW_INTERVALS: Final = 5
"""Log directories and offsets are read less often than topics: their answers have an entry for each partition."""
_OFFSETS_S: Final = 3.0
"""Limit of the wait for one leader's offsets: one that has just died is still in the metadata."""
_MOST_REQUESTED: Final = 500
"""Limit of the partitions of a request: the broker reads from disk for a time, about 50 µs for each."""

PartitionOffsets = dict[TopicPartition, OffsetAndTimestamp]


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


async def overview(asked: PageRequest) -> Overview:
    """Return the state of the cluster, at most one interval old, or some seconds while a broker does not answer."""

    async def log_dirs_of(brokers: Sequence[int]) -> LogDirs:
        silent_brokers(asked, brokers)
        interval_s = SLOW_INTERVALS * asked.settings.interval_s
        key = ("log directories", *brokers)
        return await asked.reading(key, lambda admin: read_log_dirs(admin, brokers), interval_s)

    async def read(admin: Admin) -> Overview:
        return Overview(await cluster_state(admin, log_dirs_of))

    return await asked.reading("overview", read, patient=False)


class _Answers(Struct):
    """The brokers' last answers to a session, and the first requests that they have not answered, in seconds."""

    heard_s: dict[int, float] = {}
    asked_s: dict[int, float] = {}
    looked_s: float = 0.0


_answers: WeakKeyDictionary[Session, _Answers] = WeakKeyDictionary()


def silent_brokers(asked: PageRequest, brokers: Sequence[int]) -> dict[int, int]:
    """Request an answer of each broker, and return for how many seconds those have been silent that owe one."""
    clock, answers = asked.runtime.clock, _answers.setdefault(asked.session, _Answers())
    now_s = clock.monotonic()
    if now_s - answers.looked_s > _UNWATCHED_S:
        answers.asked_s.clear()
    answers.looked_s = now_s

    async def answer(broker_id: int) -> None:
        answers.asked_s.setdefault(broker_id, clock.monotonic())
        with suppress(KafkaError):  # which is an answer
            await (await asked.admin()).describe_broker_versions(broker_id)
        answers.heard_s[broker_id] = clock.monotonic()
        answers.asked_s.pop(broker_id, None)

    for broker_id in brokers:
        asked.readings.start((asked.session.key, "answer", broker_id), partial(answer, broker_id), 1.0)
    since_s = {each: max(answers.heard_s.get(each, at_s), at_s - _CLOSE_S) for each, at_s in answers.asked_s.items()}
    return {
        each: round(now_s - at_s) for each, at_s in since_s.items() if each in brokers and now_s - at_s >= _SILENT_S
    }


async def read_offsets(admin: Admin, topics: Iterable[TopicDescription]) -> Mapping[int, PartitionOffsets]:
    """Return by EARLIEST, LATEST and MAX_TIMESTAMP the offsets of the partitions whose leaders answer in time."""
    led: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for number, each in topic.partitions.items():
            if each.leader != NO_LEADER:
                led.setdefault(each.leader, []).append(TopicPartition(topic.name, number))

    async def read(wanted: Sequence[TopicPartition], kind: int) -> PartitionOffsets:
        found: PartitionOffsets = {}
        with suppress(OdradekError, TimeoutError):  # the user may not see them, or the broker is old or away
            async with asyncio.timeout(_OFFSETS_S):
                for start in range(0, len(wanted), _MOST_REQUESTED):
                    found |= await admin.list_offsets(dict.fromkeys(wanted[start : start + _MOST_REQUESTED], kind))
        return found

    kinds = (EARLIEST, LATEST, MAX_TIMESTAMP)
    answers = await asyncio.gather(*(read(wanted, kind) for kind in kinds for wanted in led.values()))
    count = len(led)
    return {kind: dict(ChainMap(*answers[at * count : (at + 1) * count])) for at, kind in enumerate(kinds)}


def counted(offsets: Mapping[int, PartitionOffsets], topic: TopicDescription) -> tuple[int | None, int | None]:
    """Return the offsets in a topic's log and the greatest time of its messages; None where one is unknown."""
    first, end, written = offsets[EARLIEST], offsets[LATEST], offsets[MAX_TIMESTAMP]
    keys = [TopicPartition(topic.name, number) for number in topic.partitions]
    is_known = all(key in first and key in end for key in keys)
    messages = sum(end[key].offset - first[key].offset for key in keys) if is_known else None
    return messages, max((written[key].timestamp for key in keys if key in written), default=None)


def sizes_of(log_dirs: LogDirs) -> dict[TopicPartition, int] | None:
    """Return the bytes of all replicas of each partition; None if no broker returns them."""
    known = [each for directories in log_dirs.values() if directories is not None for each in directories]
    found: dict[TopicPartition, int] = {}
    for directory in known:
        for key, size in directory.sizes.items():
            found[key] = found.get(key, 0) + size
    return found if known else None
