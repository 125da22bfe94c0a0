"""A micro-batch stream read, as Spark calls it: `planning` limits each batch, Spark's checkpoint stores the offsets.

One reader lives on the driver as long as the query. Spark calls:

    prepareForTriggerAvailableNow()    at the start of an AvailableNow query, before anything else
    initialOffset()                    for the first batch, twice, and again after a restart while batch 0 is
                                       not committed: so batch 0's end stores its start (`planning`)
    latestOffset(start, limit)         at every trigger; returning `start` means that nothing is new
    partitions(start, end)             for every batch, also for one that is repeated after a restart
    commit(end)                        when the next batch begins; unused, since it leaves out the last batch

Spark calls `latestOffset` only when all earlier batches are in its commit log, also at the end of an AvailableNow
query: so `start` is the progress of the query.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.runtime import Clock, SystemClock
from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import Edge, ReadOptions
from odradek.spark.reading.boundaries import edge_offsets, find_partitions, starting_offsets
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import (
    Offsets,
    StreamOffset,
    advance,
    cap_offsets,
    decode_offset,
    encode_offset,
    id_numbers,
    limit_offsets,
    plan_micro_batch,
    raise_target,
    recreated_topics,
    recreation_losses,
    without_topics,
)
from odradek.spark.reading.scan import scan
from odradek.spark.reading.tasks import report_losses, scan_partitions

_log = logging.getLogger("odradek.spark")

COMMIT_AGAIN_S: Final = 30
"""The pause after a failed commit."""

FIRST_POLLS: Final = 10
"""How often a query without records asks again before its first batch: an empty batch takes 0.1 s, as ten polls do."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of one streaming query."""

    def __init__(
        self, options: ReadOptions, schema: Any, open_lookup: Callable[[], Lookup], clock: Clock | None = None
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._batch_at: float | None = None
        """The monotonic time, in s, of the last batch of this run."""
        self._commit_from = 0.0
        self._group_offsets: Offsets = {}
        """The offsets that this reader committed to its group."""
        self._columns = tuple(schema.fieldNames())
        self._open_lookup = open_lookup
        self._opened: Lookup | None = None
        self._target: Offsets | None = None
        self._reported: Offsets | None = None
        self._initial: dict[str, Any] | None = None
        self._planned: tuple[dict[str, Any], list[TopicPartition]] | None = None
        """The end that `latestOffset` returned last, and the partitions that existed then."""

    @brief_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offsets where the query begins. Raise `OdradekError`, such as for a missing topic."""
        if self._initial is None:
            partitions = find_partitions(self._lookup, self._options.strategy)
            offsets = starting_offsets(self._lookup, self._options, partitions)
            self._initial = encode_offset(StreamOffset(offsets=offsets, is_initial=True))
        return self._initial

    @brief_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit this run to the records that exist now."""
        self._target = edge_offsets(self._lookup, Edge.LATEST, self._there())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of `maxOffsetsPerTrigger`."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @brief_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch, or `start` if nothing is new or less than `minOffsetsPerTrigger`.

        Commits the finished batches to the group `kafka.group.id`, if it is set, so that its lag can be watched.
        """
        since = decode_offset(start)
        if not since.is_initial:
            self._commit_progress(since.offsets)
        there = self._there()
        latest = edge_offsets(self._lookup, Edge.LATEST, there)
        if since.is_initial and self._target is None:
            latest = self._await_records(since.offsets, latest)
        self._reported = latest
        since = replace(since, offsets=without_topics(since.offsets, self._recreated(since)))
        if self._target is not None:
            if since.is_initial:
                self._target = raise_target(self._target, since.offsets)
            latest = cap_offsets(latest, self._target)
        elif self._must_wait(since.offsets, latest):
            return start
        if isinstance(limit, ReadMaxRows):
            new = [partition for partition in latest if partition not in since.offsets]
            begin = {**since.offsets, **edge_offsets(self._lookup, Edge.EARLIEST, new)}
            latest = limit_offsets(begin, latest, limit.max_rows)
        following = advance(since, latest)
        # Spark compares offsets as texts: `start` is returned as it was passed.
        if following is since:
            return start
        end = self._encode(following)
        self._planned = end, there
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the log end offsets that the last `latestOffset` found, for the query's progress reports."""
        return None if self._reported is None else encode_offset(StreamOffset(offsets=self._reported))

    @brief_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a Spark partition per task. Raise `DataLossError` if records are lost and `failOnDataLoss` is on."""
        until = decode_offset(end)
        before = decode_offset(start)
        planned, self._planned = self._planned, None
        there = planned[1] if planned is not None and planned[0] == end else self._there()
        recreated, again = self._recreated(before), self._recreated(until)
        # A topic that was created again since the batch was planned is read by the next batch.
        since = without_topics(without_topics(before.offsets, recreated) if until.start is None else until.start, again)
        ends = without_topics(until.offsets, again)
        try:
            earliest = edge_offsets(self._lookup, Edge.EARLIEST, sorted(ends.keys() & there))
        except KafkaError:  # a topic may have been deleted since `latestOffset`
            earliest = edge_offsets(self._lookup, Edge.EARLIEST, sorted(ends.keys() & self._there()))
        plan = plan_micro_batch(since, ends, earliest)
        plan = replace(plan, losses=recreation_losses(recreated | again) + plan.losses)
        return scan_partitions(plan, self._options, self._columns, self._lookup)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return a task's Arrow record batches. Runs in a task, on a copy of this object."""
        return scan(partition.value) if partition.value is not None else iter(())

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _commit_progress(self, offsets: Offsets) -> None:
        """Commit changed offsets. A failure is only logged, and commits pause for `COMMIT_AGAIN_S`."""
        group_id = self._options.client.get("group.id")
        if group_id is None or offsets == self._group_offsets or self._clock.monotonic() < self._commit_from:
            return
        try:
            self._lookup.commit(group_id, offsets)
        except OdradekError as error:
            self._commit_from = self._clock.monotonic() + COMMIT_AGAIN_S
            _log.warning("Progress is not committed to the group %r for %d s: %s", group_id, COMMIT_AGAIN_S, error)
        else:
            self._group_offsets = offsets

    def _must_wait(self, start: Offsets, latest: Offsets) -> bool:
        """Return whether to wait for `minOffsetsPerTrigger`: never for a run's first batch, as in the JVM connector."""
        least, now = self._options.min_offsets_per_trigger, self._clock.monotonic()
        if least is None:
            return False
        new = sum(max(end - start.get(partition, 0), 0) for partition, end in latest.items())
        delay_s = self._options.max_trigger_delay_ms / 1000
        if self._batch_at is not None and new < least and now - self._batch_at < delay_s:
            return True
        self._batch_at = now
        return False

    def _recreated(self, offset: StreamOffset) -> set[str]:
        """Return the topics that were created again; they are read from their beginning.

        Raise `DataLossError` for them if `failOnDataLoss` is on.
        """
        found = recreated_topics(offset.topic_ids, id_numbers(self._lookup.topic_ids()))
        if self._options.fail_on_data_loss:
            report_losses(recreation_losses(found), self._options)
        return found

    def _encode(self, offset: StreamOffset) -> dict[str, Any]:
        return encode_offset(replace(offset, topic_ids=id_numbers(self._lookup.topic_ids())))

    def _there(self) -> list[TopicPartition]:
        return self._lookup.partitions(self._options.strategy)

    def _await_records(self, initial: Offsets, latest: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `latest`, or later log end offsets if records arrive soon."""
        for _ in range(FIRST_POLLS):
            if latest != initial or not latest:
                break
            self._lookup.wait()
            latest = edge_offsets(self._lookup, Edge.LATEST, list(latest))
        return latest

    @property
    def _lookup(self) -> Lookup:
        """The lookup, opened at first use: copies of this reader in tasks open none."""
        if self._opened is None:
            self._opened = self._open_lookup()
        return self._opened
