"""A stream whose query is a member of a consumer group: `consumeMode=group` (SPEC 10; decision 17).

The group's coordinator assigns the partitions among the queries that name the same `kafka.group.id`; the partitions of
a dead query go to the others. Reading continues at the group's committed offset. The driver is the member; tasks
fetch, as in any stream.

The end offset of a batch also stores the batch's start, for the partitions that the query had then:

    {"@": {"start": {"topic": {"0": 40}}}, "topic": {"0": 42}}

A query with `availableNow` ends when the group has read up to the log end offsets at the query's start. It waits for
the other members, and takes over the partitions of members that die.

A query commits offsets and gives partitions up only between two batches, so a rebalance repeats nothing. If a query
dies in a batch, or a batch takes longer than `kafka.max.poll.interval.ms`, other queries read the batch again: at least
once.
"""

import logging
import math
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import current_thread, main_thread
from typing import Any, Final, Protocol

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from odradek.clients.blocking import Consumer
from odradek.model import OdradekError, TopicPartition
from odradek.runtime import Clock, SystemClock
from odradek.spark.options import Edge, ReadOptions
from odradek.spark.reading.boundaries import edge_offsets, find_partitions, starting_offsets
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import StreamOffset, decode_offset, encode_offset, limit_offsets
from odradek.spark.reading.stream_reader import StreamReader

_log = logging.getLogger("odradek.spark")

_JOIN_S: Final = 10.0
"""How long the first trigger waits for partitions; the coordinator waits 3 s for other members of a new group."""
_REBALANCE_S: Final = 3.0
"""How long a trigger waits for new partitions after some were revoked; a later trigger reads those that come later."""
_POLL_MS: Final = 100
_MAX_POLL_INTERVAL_MS: Final = "300000"
"""Kafka's default of `max.poll.interval.ms`."""


class Member(Protocol):
    """A member of the group; tests implement it with a dict."""

    def poll(
        self, topics: Collection[str], wait_ms: int = 0
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        """Take part in rebalances. Return the owned partitions, and those of them assigned in this call.

        Wait up to `wait_ms` for a rebalance.
        """

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the partitions that have one."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read. Raise `OdradekError`, also if the member lost its partitions."""

    def close(self) -> None:
        """Leave the group."""


class GroupStreamReader(StreamReader):
    """The reader of one streaming query in a group."""

    def __init__(
        self,
        options: ReadOptions,
        schema: Any,
        open_lookup: Callable[[], Lookup],
        open_member: Callable[[], Member],
        clock: Clock | None = None,
    ) -> None:
        super().__init__(options, schema, open_lookup, clock)
        self._open_member = open_member
        self._member: Member | None = None
        self._positions: dict[TopicPartition, int] = {}
        """The next offset to read of each owned partition."""
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        """Start and end of the last batch, for each of its partitions that this query does not own now."""
        self._committed: dict[TopicPartition, int] = {}
        """The group's committed offsets that this query has fetched or committed."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return an offset without partitions; the first trigger adds them. Raise `OdradekError` for missing topics."""
        find_partitions(self._lookup, self._options.strategy)
        return encode_offset(StreamOffset(offsets={}, is_initial=True))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit the batch that ended at `start`, take part in a rebalance, and return the end of the next batch.

        Returns `start` if the query's partitions have nothing new, or, until `maxTriggerDelay`, less than
        `minOffsetsPerTrigger`. After the initial offset it returns a new one in any case. With `availableNow`, it
        waits before it returns `start` while other members are behind; it logs a warning and returns if none of them
        advances within `max.poll.interval.ms`.
        """
        since = decode_offset(start)
        self._finish(since)
        self._rebalance()
        self._finish(since)
        deadline, before = math.inf, None
        while (following := self._following(since, start, limit)) is start and (behind := self._behind()):
            if behind != before:
                interval_ms = int(self._options.client.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS))
                deadline, before = self._clock.monotonic() + interval_ms / 1000, behind
            elif self._clock.monotonic() > deadline:
                _log.warning(
                    "Other members of the group do not read on, so these partitions stay unread from these offsets: %s",
                    behind,
                )
                break
            self._rebalance(_POLL_MS)
            self._finish(since)
        return following

    def _following(self, since: StreamOffset, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = dict(self._positions)
        ends = self._reported = edge_offsets(self._lookup, Edge.LATEST, sorted(begin))
        if self._target is not None:
            ends = {each: min(end, max(self._target.get(each, 0), begin[each])) for each, end in ends.items()}
        elif self._must_wait(begin, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limit_offsets(begin, ends, limit.max_rows)
        if ends == begin and not since.is_initial:
            return start
        return encode_offset(StreamOffset(offsets=ends, start=begin))

    def stop(self) -> None:
        """Leave the group, and close the connections."""
        if self._member is not None:
            self._member.close()
            self._member = None
        super().stop()

    def _finish(self, since: StreamOffset) -> None:
        """Set each position that is at the last batch's start to that batch's end, and commit the changed positions.

        Other positions stay: after a restart, another query may have advanced them. The last batch of a partition that
        another member has is kept until the partition comes back. A failed commit is only logged.
        """
        if since.start is not None:
            self._last |= {each: (since.start.get(each, -1), end) for each, end in since.offsets.items()}
        for partition in self._last.keys() & self._positions.keys():
            start, end = self._last.pop(partition)
            if self._positions[partition] == start:
                self._positions[partition] = end
        changed = {each: end for each, end in self._positions.items() if self._committed.get(each) != end}
        if changed and self._member is not None:
            try:
                self._member.commit(changed)
            except OdradekError as error:
                _log.warning("Failed to commit progress, other queries may read these records again: %s", error)
            else:
                self._committed |= changed

    def _behind(self) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition of other members that is below this run's end."""
        away = [each for each in self._target or () if each not in self._positions]
        if not away or self._target is None or self._member is None:
            return {}
        at = edge_offsets(self._lookup, Edge.EARLIEST, away)
        at |= self._member.committed(away)
        return {each: at[each] for each in away if each in at and at[each] < self._target[each]}

    def _rebalance(self, wait_ms: int = 0) -> None:
        if self._member is None:
            self._member = self._open_member()
        topics = {partition.topic for partition in self._lookup.partitions(self._options.strategy)}
        owned, given = self._member.poll(topics, wait_ms)
        self._positions = {each: at for each, at in self._positions.items() if each in owned and each not in given}
        if new := [each for each in sorted(owned) if each not in self._positions]:
            found = self._member.committed(new)
            self._committed |= found
            self._positions |= found | self._first_offsets([each for each in new if each not in found])

    def _first_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        for each in partitions:
            self._committed.pop(each, None)
        everywhere = find_partitions(self._lookup, self._options.strategy)
        starts = starting_offsets(self._lookup, self._options, everywhere)
        return {each: starts[each] for each in partitions}


def exit_once(number: int, frame: object) -> None:
    """Handle a signal: ignore it from now on, and exit. Spark sends two, and the second would interrupt `stop`."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    sys.exit()


class ConsumerMember:
    """A `Member` with a `Consumer` whose partitions are paused: it takes part in the group and fetches nothing."""

    def __init__(self, settings: Mapping[str, Any], clock: Clock | None = None) -> None:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and current_thread() is main_thread():
            # Spark ends a stopped query's process by SIGTERM; its `finally`, which calls `stop`, shall run.
            signal.signal(signal.SIGTERM, exit_once)
        self._consumer = Consumer(**settings, enable_auto_commit=False).start()
        self._clock = clock or SystemClock()
        self._topics: frozenset[str] = frozenset()
        self._given: set[TopicPartition] = set()
        self._wait_s = _JOIN_S
        """How long `poll` waits for an assignment; 0 unless a rebalance has begun."""

    def poll(
        self, topics: Collection[str], wait_ms: int = 0
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        if frozenset(topics) != self._topics:
            self._topics = frozenset(topics)
            self._consumer.subscribe(
                sorted(topics),
                on_partitions_assigned=self._on_assigned,
                on_partitions_revoked=self._on_revoked,
                on_partitions_lost=self._on_revoked,
            )
        self._given.clear()
        began = self._clock.monotonic()
        self._consumer.poll(wait_ms)
        while self._topics and self._clock.monotonic() - began < self._wait_s:
            self._consumer.poll(_POLL_MS)
        self._wait_s = 0.0
        owned = self._consumer.assignment()
        return owned, self._given & owned

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._consumer.committed(*partitions)
        return {each: offset.offset for each, offset in found.items() if offset is not None}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._consumer.commit(dict(offsets))

    def close(self) -> None:
        self._consumer.close()

    def _on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        some = list(partitions)
        self._consumer.pause(*some)
        self._given.update(some)
        self._wait_s = 0.0

    def _on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        del partitions
        self._wait_s = _REBALANCE_S
