"""Queries of one group, as Spark's with `consumeMode=group`, each with a checkpoint that survives its crashes.

A query stores each batch in its checkpoint, reads it, and marks it as finished. Its process ends at any await, leaves
the group between batches, or hangs for longer than `max.poll.interval.ms`. In the end one query dies in a batch for
ever. The seed draws the protocol, the assignor, static members and the size of batches. The promises (decision 17):

- Every acknowledged record is in a finished batch in the end.
- A partition has one owner per generation.
- A commit is refused if a higher offset was acknowledged before it was sent, and a fetched offset is not below one
  that was acknowledged before the request.
- No batch begins below an offset that was committed before its query got the partition: a batch is read again only if
  its query died, hung, or could not commit.
- A restarted query repeats an unfinished last batch, with the same records, and goes on at its end: two batches in a
  row begin at one offset of a partition only if the first had no record of it.
- A query with a target ends when the group has read up to there, or none has advanced for `max.poll.interval.ms`.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from odradek.clients import Consumer
from odradek.clients.cluster import Cluster, open_cluster
from odradek.clients.group_stream import Batch, ConsumerMember, GroupStream, Offsets
from odradek.clients.reader import RangeReader
from odradek.model import OdradekError, TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.consumer_group import SHORT_SESSIONS, CommitHistory, draw_protocol
from odradek.simulation.workloads.feeder import PARTITIONS, Feeder
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "batched"
GROUP: Final = "queries"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
_MAX_POLL_INTERVAL_MS: Final = 12_000
"""Longer than a session, so that a query with a target sees the partitions of dead members."""


class QueryHistory(CommitHistory):
    """The partitions, records and commits of all queries, checked as they come; `read`: values of finished batches."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self._values: dict[tuple[TopicPartition, int], bytes] = {}

    def own(self, host: str, generation: int, owned: Collection[TopicPartition]) -> None:
        """Note what a query owns in a generation."""
        for place in sorted(owned):
            other = self._owners.setdefault((generation, place), host)
            if other != host:
                raise BrokenPromiseError(f"{host} and {other} own {place} in generation {generation}")

    def seen(self, place: TopicPartition, offset: int, value: bytes) -> None:
        """Note a record, which may have been read before."""
        before = self._values.setdefault((place, offset), value)
        if before != value:
            raise BrokenPromiseError(f"{place} had {before!r} at {offset}, and {value!r} when it was read again")


class _RecordingMember(ConsumerMember):
    """A member whose ownership, commits and fetched offsets are checked."""

    def __init__(self, world: World, host: str, consumer: Consumer, history: QueryHistory) -> None:
        super().__init__(consumer, world.simulation.runtime(host).clock)
        self.least: dict[TopicPartition, int] = {}
        """The commits that were acknowledged before the query got its partitions."""
        self._host, self._history, self._group = host, history, consumer.group_metadata
        self._generation = 0

    async def poll(
        self, topics: Collection[str], wait_ms: int = 0
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        least = self._history.least()
        owned, given = await super().poll(topics, wait_ms)
        generation = self._group().generation_id
        if generation > 0:  # else the member is out of the group, and does not know it yet
            self._history.own(self._host, generation, owned)
            if generation != self._generation:
                self._generation, self.least = generation, least
        return owned, given

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        least = self._history.least()
        found = await super().committed(partitions)
        self._history.fetch(found, {place: least.get(place, 0) for place in partitions}, self._host)
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        least = self._history.least()
        await super().commit(offsets)
        self._history.commit(offsets, least, self._host)


class Query:
    """A query on its own host: one process after the other, with one checkpoint."""

    def __init__(self, world: World, host: str, history: QueryHistory, settings: Mapping[str, Any], most: int) -> None:
        self.host = host
        self.is_calm = False
        """Whether it crashes no more, and ends when the group has read all that is there."""
        self.is_doomed = False
        """Whether it dies in its next batch, for ever."""
        self.errors: list[str] = []
        self._world, self._history, self._settings, self._most = world, history, settings, most
        self._chance = world.simulation.entropy(host)
        self._clock = world.simulation.runtime(host).clock
        self._ends: dict[TopicPartition, int] = {}
        """Where its last finished batch of each partition ends."""
        self._last: Batch | None = None
        self._is_finished = True
        """Whether the last batch is finished; this and `_last` are the checkpoint."""

    async def live(self) -> None:
        """Run one process after the other, until it is done or dead."""
        while not await self._one_life():  # noqa: ASYNC110 - no polling: each life reads batches
            await asyncio.sleep(self._chance.choice((0.1, 2.0)))

    async def _one_life(self) -> bool:
        """Run one process; return whether there is no other after it."""
        settings: dict[str, Any] = {**self._settings, **READERS}
        if "group_instance_id" in settings:
            settings["group_instance_id"] = self.host
        consumer = self._world.consumer(self.host, group_id=GROUP, **settings)
        work = self._world.spawn(self.host, self._work(consumer))
        life_s = None if self.is_calm or self.is_doomed else self._chance.choice((2.0, 20.0, 60.0))
        try:
            await asyncio.wait([work], timeout=life_s and life_s * self._chance.random())
            return work.done() and work.result()
        except (OdradekError, TimeoutError) as error:
            self.errors.append(f"{self._world.now_s:.2f} {error}")
            return False
        finally:
            work.cancel()
            await asyncio.wait([work])
            self._world.simulation.kill(self.host)
            await consumer._cluster.close()  # a process that dies does not leave its group
            await consumer.close()

    async def _work(self, consumer: Consumer) -> bool:
        await consumer.start()
        member = _RecordingMember(self._world, self.host, consumer, self._history)
        stream = GroupStream(member, member.beginning_offsets, self._clock, max_poll_interval_ms=_MAX_POLL_INTERVAL_MS)
        settings = {**self._world.client_settings(self.host), **CLIENTS}
        async with open_cluster(
            self._world.servers, runtime=self._world.simulation.runtime(self.host), **settings
        ) as cluster:
            return await self._run(member, stream, cluster)

    async def _run(self, member: _RecordingMember, stream: GroupStream, cluster: Cluster) -> bool:
        target = await member.end_offsets(_PLACES) if self.is_calm else None
        if self._last is not None and not self._is_finished:
            await self._read(cluster, self._last)
        while target is not None or not (self.is_calm or self._chance.random() < 0.05):
            began = self._clock.monotonic()
            batch = await stream.next_batch(self._last, {TOPIC}, self._limit, target)
            if batch is not None:
                self._check(batch, member.least)
                await self._rest(0.0, 0.01)
                self._last, self._is_finished = batch, False
                if self.is_doomed:
                    return True
                await self._read(cluster, batch)
            elif target is not None:
                is_late = self._clock.monotonic() - began > _MAX_POLL_INTERVAL_MS / 1000
                await self._check_end(member, target, is_late=is_late)
                await stream.close()
                return not is_late
            await self._rest(0.05, 0.5)
        await stream.close()
        return False

    async def _rest(self, *seconds: float) -> None:
        await asyncio.sleep(self._chance.choice(seconds))

    def _limit(self, start: Offsets, end: Offsets) -> Offsets:
        return {place: min(offset, start[place] + self._most) for place, offset in end.items()}

    async def _read(self, cluster: Cluster, batch: Batch) -> None:
        """Read the last batch as tasks do, and mark it as finished."""
        ranges = {place: (start, batch.end[place]) for place, start in batch.start.items()}
        values = []
        async for runs in RangeReader(cluster, ranges, timeout_ms=10_000):
            for place, _, buffer in runs:
                for position, _ in iterate_batches(buffer):
                    for record in decode_records(buffer, position):
                        if ranges[place][0] <= record.offset < ranges[place][1]:
                            self._history.seen(place, record.offset, record.value or b"")
                            values.append(record.value or b"")
        await self._rest(0.0, 0.1, 0.0 if self.is_calm else 1.0)
        if not self.is_calm and self._chance.random() < 0.08:
            await asyncio.sleep(1.5 * _MAX_POLL_INTERVAL_MS / 1000)
        self._is_finished = True
        self._ends |= batch.end
        self._history.read |= set(values)

    def _check(self, batch: Batch, least: Mapping[TopicPartition, int]) -> None:
        """Raise `BrokenPromiseError` if the batch repeats what is finished."""
        for place, start in batch.start.items():
            if start < least.get(place, 0):
                raise BrokenPromiseError(f"{self.host} reads {place} from {start}, and {least[place]} was committed")
            if self._last is not None and self._last.start.get(place) == start < self._last.end[place]:
                raise BrokenPromiseError(
                    f"{self.host} has finished {self._last.end[place]} of {place}, and reads {start}"
                )

    async def _check_end(self, member: _RecordingMember, target: Offsets, *, is_late: bool) -> None:
        """Raise `BrokenPromiseError` if the query has ended before its group had read up to `target`."""
        committed = await member.committed(_PLACES)
        unread = {p: end for p, end in target.items() if max(committed.get(p, 0), self._ends.get(p, 0)) < end}
        if unread and not is_late:
            raise BrokenPromiseError(f"{self.host} has ended, and its group has not read up to {unread}: {committed}")


class GroupReader(Workload):
    """A producer, and two or three queries of one group."""

    config: ClassVar[Mapping[str, str]] = SHORT_SESSIONS
    clients: ClassVar[Sequence[str]] = ("query-0", "query-1")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        chance = world.simulation.entropy("group of queries")
        settings: dict[str, Any] = {"enable_auto_commit": False, "max_poll_interval_ms": _MAX_POLL_INTERVAL_MS}
        settings |= draw_protocol(chance)
        if settings["group_protocol"] == "classic":
            settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
            if chance.random() < 0.25:
                settings |= {"group_instance_id": "the name of the host"}
        self._history = QueryHistory()
        self._feeder = Feeder(world, "query-feeder", TOPIC)
        most = chance.choice((2, 20))
        self._queries = [
            Query(world, f"query-{number}", self._history, settings, most) for number in range(chance.choice((2, 3, 3)))
        ]
        self._lives: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await create_topic(self.world, TOPIC, PARTITIONS)
        await self._feeder.start()
        self._lives = [self.world.spawn(each.host, each.live()) for each in self._queries]
        await until(self._has_read, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Let a query die in a batch, send no more, and wait until the others have read all."""
        self._queries[-1].is_doomed = True
        stuck = not await self._ended(self._lives[-1:])
        await self._feeder.stop()
        for each in self._queries[:-1]:
            each.is_calm = True
        stuck = stuck or not await self._ended(self._lives[:-1])
        unread = sorted(self._feeder.sent.keys() - self._history.read)[:5]
        if stuck:
            await cancel(*self._lives)
            errors = {each.host: each.errors[-3:] for each in self._queries}
            return [f"queries of a group do not end; unread are {unread}; their errors: {errors}"]
        return [f"queries of a group have ended, and did not read {unread}"] if unread else []

    def _has_read(self) -> bool:
        raise_failures(self._lives)
        return bool(self._history.read)

    async def _ended(self, lives: Sequence[asyncio.Task[None]]) -> bool:
        with suppress(TimeoutError):
            await until(partial(self._all_ended, lives), within_s=PATIENCE_S, each_s=0.1)
        return self._all_ended(lives)

    def _all_ended(self, lives: Sequence[asyncio.Task[None]]) -> bool:
        raise_failures(self._lives)
        return all(life.done() for life in lives)
