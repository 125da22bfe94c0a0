"""Takes fetched records for `poll` from `SubscriptionState`, in turn from all partitions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from odradek.clients.consumer.deserializers import Deserializers
from odradek.clients.consumer.metrics import ConsumerMetrics
from odradek.clients.consumer.subscription_state import ConsumerRecord, RawBatch, SubscriptionState, TopicPartitionState
from odradek.clients.fetch import CorruptRecordsError
from odradek.model import KafkaError

if TYPE_CHECKING:
    import pyarrow

    from odradek.columns import RecordColumns


class FetchCollector:
    """Returns fetched records, or raises a partition's error if no records come before it.

    Records come from one partition until its decoded batch is used up, so that only one decoded batch is in memory;
    then the next partition follows.
    """

    def __init__(
        self, subscriptions: SubscriptionState, deserializers: Deserializers | None, metrics: ConsumerMetrics
    ) -> None:
        self._subscriptions = subscriptions
        self._deserializers = deserializers
        self._metrics = metrics
        self._current: TopicPartitionState | None = None
        """The partition with the decoded batch."""
        self.run: list[ConsumerRecord] = []
        """The records of the last `begin_run` that were not popped or taken back."""

    def collect_records(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records and move the positions. Raises a partition's error if no record precedes it."""
        records: list[ConsumerRecord] = []
        for state in self._in_turn():
            if len(records) >= limit:
                break
            self._raise_error(state, is_first=not records)
            if state.is_paused or not state.has_buffered:
                continue
            buffered_bytes = state.buffered_bytes
            some = state.take(limit - len(records), self._deserializers)
            self._metrics.bytes_consumed_total += buffered_bytes - state.buffered_bytes
            records += some
            self._end_turn(state)
            self._raise_error(state, is_first=not records)
        self._metrics.records_consumed_total += len(records)
        return records

    def begin_run(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records of one partition, in reverse order, or raise its error.

        The position moves past the records that are popped from the list, until the partition takes the others back.
        """
        for state in self._in_turn():
            self._raise_error(state, is_first=True)
            if state.is_paused or not state.has_buffered:
                continue
            buffered_bytes = state.buffered_bytes
            self.run = state.begin_run(limit, self._count, self._deserializers)
            self._metrics.bytes_consumed_total += buffered_bytes - state.buffered_bytes
            self._end_turn(state)
            self._raise_error(state, is_first=True)
            if self.run:
                return self.run
        return []

    def _count(self, returned: int) -> None:
        self._metrics.records_consumed_total += returned

    def collect_raw(self, max_bytes: int) -> list[RawBatch]:
        """Return undecoded batches of about `max_bytes` decompressed, at least one if any is buffered.

        Raises a partition's error if no batch is before it.
        """
        raws: list[RawBatch] = []
        size = 0
        for state in self._in_turn():
            self._raise_error(state, is_first=not raws)
            while not state.is_paused and size < max_bytes and (raw := state.take_raw(max_bytes - size)) is not None:
                raws.append(raw)
                size += raw.decompressed_bytes
                self._end_turn(state)
            if size >= max_bytes:
                break
        return raws

    def decode_columns(self, raws: Sequence[RawBatch], columns: "RecordColumns") -> "pyarrow.RecordBatch":
        """Return the records of batches from `collect_raw` as Arrow columns.

        If decoding fails, only the first of `raws` is decoded, and the others are buffered again. Raises `KafkaError`
        if the first is corrupt; then all are buffered again.
        """
        try:
            return self._decoded(raws, columns)
        except KafkaError:
            self._give_back(raws[1:])
        except BaseException:
            self._give_back(raws)
            raise
        try:
            return self._decoded(raws[:1], columns)
        except KafkaError as error:
            self._give_back(raws[:1])
            self._subscriptions.move_to_end(self._subscriptions[raws[0].partition])  # after the others in the next call
            first = (raws[0].parts or raws)[0]
            raise CorruptRecordsError(first.partition, first.from_offset, first.next_offset, error) from error
        except BaseException:
            self._give_back(raws[:1])
            raise

    def _decoded(self, raws: Sequence[RawBatch], columns: "RecordColumns") -> "pyarrow.RecordBatch":
        from odradek.columns import PartitionBatches, decode_partitions

        sources = [PartitionBatches(raw.buffer, *raw.partition, raw.from_offset) for raw in raws]
        batch = decode_partitions(sources, columns, check_crcs=False)
        self._metrics.bytes_consumed_total += sum(raw.size for raw in raws)
        self._metrics.records_consumed_total += batch.num_rows
        return batch

    def _give_back(self, raws: Sequence[RawBatch]) -> None:
        for raw in reversed(raws):
            self._subscriptions[raw.partition].give_back(raw)

    def _in_turn(self) -> Iterator[TopicPartitionState]:
        """Yield the partition with the decoded batch, then the others, the least recently used first."""
        current = self._current
        if current is not None:
            if self._subscriptions.get(current.partition) is current:
                self._end_turn(current)  # an iteration may have returned its last record
            else:
                self._current = None
        current = self._current
        if current is not None:
            yield current
        yield from (state for state in self._subscriptions if state is not current)

    def _end_turn(self, state: TopicPartitionState) -> None:
        if state.has_pending and state.error is None:
            self._current = state
        else:
            self._current = None
            self._subscriptions.move_to_end(state)

    def _raise_error(self, state: TopicPartitionState, *, is_first: bool) -> None:
        """If `is_first` (nothing was taken yet), raise the partition's error, if any, and move it to the end."""
        if state.error is not None and is_first:
            error, state.error = state.error, None
            self._subscriptions.move_to_end(state)
            raise error
