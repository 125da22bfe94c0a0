"""A stream whose query is a member of a consumer group: `consumeMode=group` (SPEC 10; decision 17).

This module adapts `clients.group_stream`, which plans and commits batches, to Spark: the driver is the member of the
group, and tasks fetch, as in any stream.
The end offset of a batch also stores the batch's start, for the partitions that the query had then:

    {"@": {"start": {"topic": {"0": 40}}}, "topic": {"0": 42}}

A query with `availableNow` ends when the group has read up to the log end offsets at the query's start. It waits for
the other members, and takes over the partitions of members that die.
"""

import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from threading import current_thread, main_thread
from typing import Any, Final

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from odradek.clients.blocking.loop_thread import in_callers_thread, loop_thread
from odradek.clients.consumer import Consumer
from odradek.clients.group_stream import Batch, ConsumerMember, GroupStream, Member, Offsets
from odradek.model import TopicPartition
from odradek.runtime import Clock, SystemClock
from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import Edge, ReadOptions
from odradek.spark.reading.boundaries import edge_offsets, find_partitions, starting_offsets
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import (
    StreamOffset,
    decode_offset,
    encode_offset,
    id_numbers,
    limit_offsets,
    recreated_topics,
    without_topics,
)
from odradek.spark.reading.stream_reader import StreamReader

_MAX_POLL_INTERVAL_MS: Final = "300000"
"""Kafka's default of `max.poll.interval.ms`."""


class GroupStreamReader(StreamReader):
    """The reader of one streaming query in a group."""

    def __init__(
        self,
        options: ReadOptions,
        schema: Any,
        open_lookup: Callable[[], Lookup],
        open_member: Callable[[], Awaitable[Member]],
        clock: Clock | None = None,
    ) -> None:
        super().__init__(options, schema, open_lookup, clock)
        self._open_member = open_member
        self._stream: GroupStream | None = None
        self._stream_ids: Mapping[str, int] = {}
        """The ids of topics when the stream was opened."""
        self._again: Collection[str] = ()
        """The topics that were created again since the last batch."""

    @brief_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return an offset without partitions; the first trigger adds them. Raise `OdradekError` for missing topics."""
        find_partitions(self._lookup, self._options.strategy)
        return encode_offset(StreamOffset(offsets={}, is_initial=True))

    @brief_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Commit the batch that ended at `start`, take part in a rebalance, and return the end of the next batch.

        Returns `start` if the query's partitions have nothing new, or, until `maxTriggerDelay`, less than
        `minOffsetsPerTrigger`. After the initial offset it returns a new one in any case.
        """
        since = decode_offset(start)
        topics = {each.topic for each in self._lookup.partitions(self._options.strategy)}
        again = self._again = self._recreated(since)
        last = None if since.is_initial else Batch(start=since.start or {}, end=without_topics(since.offsets, again))
        if recreated_topics(self._stream_ids, id_numbers(self._lookup.topic_ids())):
            # The stream's positions are of the old topic.
            self._leave()
        stream = self._stream = self._stream or self._open_stream()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None

        def limited(begin: Offsets, ends: Offsets) -> Offsets:
            if self._target is None and self._must_wait(begin, ends):
                return begin
            return ends if most is None else limit_offsets(begin, ends, most)

        batch = loop_thread().run(lambda: stream.next_batch(last, topics, limited, self._target))
        self._reported = stream.log_ends
        return start if batch is None else self._encode(StreamOffset(offsets=batch.end, start=batch.start))

    def stop(self) -> None:
        """Leave the group, and close the connections."""
        self._leave()
        super().stop()

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            loop_thread().on_exit(id(stream), None)
            loop_thread().run(stream.close)

    def _open_stream(self) -> GroupStream:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and current_thread() is main_thread():
            # Spark ends a stopped query's process by SIGTERM; its `finally`, which calls `stop`, shall run.
            signal.signal(signal.SIGTERM, exit_once)
        settings: Mapping[str, str] = self._options.group or {}
        stream = GroupStream(
            loop_thread().run(self._open_member),
            in_callers_thread(self._first_offsets),
            self._clock,
            max_poll_interval_ms=int(settings.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS)),
        )
        loop_thread().on_exit(id(stream), stream.close)
        self._stream_ids = id_numbers(self._lookup.topic_ids())
        return stream

    def _first_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        everywhere = find_partitions(self._lookup, self._options.strategy)
        starts = starting_offsets(self._lookup, self._options, everywhere)
        starts |= edge_offsets(self._lookup, Edge.EARLIEST, [each for each in starts if each.topic in self._again])
        return {each: starts[each] for each in partitions}


def exit_once(number: int, frame: object) -> None:
    """Handle a signal: ignore it from now on, and exit. Spark sends two, and the second would interrupt `stop`."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    sys.exit()


async def open_member(settings: Mapping[str, Any]) -> Member:
    consumer = Consumer(**settings, enable_auto_commit=False)
    return ConsumerMember(await consumer.start(), SystemClock())
