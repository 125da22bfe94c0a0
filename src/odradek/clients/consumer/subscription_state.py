"""The assigned partitions of a consumer, their positions and their buffered records; no clock and no I/O.

A seek discards buffered records and changes a partition's `version`, so that responses to earlier fetches are ignored.
A partition that is revoked and assigned again gets a new state.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from odradek.clients.fetch import CorruptRecordsError, readable_batches
from odradek.clients.metadata import ClusterMetadata
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import headers_at, open_batch, parse_records, record_rows
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.messages.fetch import FetchedPartition

_MAX_BUFFERED_FETCHES: Final = 2
"""The maximum of buffered responses per partition: one to read, and one prefetched."""
_ASSUMED_COMPRESSION_RATIO: Final = 8
"""The assumed ratio of decompressed to compressed size."""


class ConsumerRecord(NamedTuple):
    """A record with its partition and offset. `timestamp` is in ms; `leader_epoch` is -1 if unknown (KIP-320).

    `timestamp_type` is 0 if the producer set the timestamp (CreateTime), 1 if the broker did (LogAppendTime).

    `key` and `value` are bytes or None, or as the consumer's deserializers return them.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    timestamp_type: int = 0


Deserialize = Callable[[Sequence[ConsumerRecord]], tuple[list[ConsumerRecord], KafkaError | None]]
"""Returns the records before the first that fails, with deserialized keys and values, and that record's error."""


class RawBatch(NamedTuple):
    """Undecoded record batches, `fetched[start:end]`; readers skip records before `from_offset`."""

    partition: TopicPartition
    fetched: memoryview
    start: int
    end: int
    from_offset: int
    next_offset: int
    leader_epoch: int
    timestamp_type: int
    decompressed_bytes: int
    """The estimated size of the records after decompression."""
    parts: tuple["RawBatch", ...] = ()
    """The batches that `take_raw` has joined; empty for a single batch."""

    @property
    def size(self) -> int:
        """Return the size in bytes, compressed as received."""
        return self.end - self.start

    @property
    def buffer(self) -> memoryview:
        return self.fetched[self.start : self.end]


class TopicPartitionState(Struct):
    """An assigned partition. `position` is the offset of the next record to return, None if unknown.

    `fetch_position` is the offset of the next record to fetch. `leader_epoch` is the epoch of the record before
    `position`, `fetch_epoch` that of the record before `fetch_position`; -1 means unknown.
    """

    partition: TopicPartition
    _position: int | None = None
    leader_epoch: int = -1
    fetch_position: int = 0
    fetch_epoch: int = -1
    version: int = 0
    metadata: ClusterMetadata | None = None
    """The metadata from which `leader`, `current_leader_epoch` and `topic_id` were taken."""
    leader: int | None = None
    current_leader_epoch: int = -1
    topic_id: uuid.UUID | None = None
    is_validated: bool = False
    """Whether the current leader's log is known to have the record before `fetch_position` (KIP-320)."""
    preferred_read_replica: int | None = None
    """The replica to fetch from instead of the leader (KIP-392), until `preferred_until` in monotonic seconds."""
    preferred_until: float = 0.0
    is_paused: bool = False
    is_fetching: bool = False
    retry_at: float = 0.0
    reset: int | None = None
    """The timestamp to look up with ListOffsets: `EARLIEST`, `LATEST`, or a time in ms."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    error: OdradekError | None = None
    """The error that the next poll raises, once."""
    buffers: deque[deque[RawBatch]] = field(default_factory=deque)
    buffered_bytes: int = 0
    """The size of the records in `buffers`, as received."""
    pending: list[ConsumerRecord] = field(default_factory=list)
    taken: int = 0
    """The number of records at the start of `pending` that were returned."""
    batch: RawBatch | None = None
    """The batch of the records in `pending`."""
    run: list[ConsumerRecord] = field(default_factory=list)
    """The last records of `begin_run` that the iteration has not returned, in reverse order."""
    run_size: int = 0
    """The number of records in `run` when the position was last moved."""
    on_returned: Callable[[int], None] = lambda _: None

    @property
    def position(self) -> int | None:
        self._move_past_returned()
        return self._position

    @position.setter
    def position(self, offset: int | None) -> None:
        self._position = offset

    @property
    def is_fetchable(self) -> bool:
        """Return whether a fetch should include the partition now."""
        return (
            self.position is not None
            and not self.is_paused
            and not self.is_fetching
            and self.error is None
            and len(self.buffers) < _MAX_BUFFERED_FETCHES
        )

    @property
    def needs_validation(self) -> bool:
        """Return whether the position must be compared with the leader's log before the next fetch (KIP-320).

        A leader has all records that were read in its own epoch. Without epochs there is nothing to compare.
        """
        return (
            not self.is_validated
            and self.fetch_epoch != self.current_leader_epoch
            and min(self.fetch_epoch, self.current_leader_epoch) >= 0
        )

    @property
    def is_ahead_of_metadata(self) -> bool:
        """Return whether the record before `fetch_position` is of a newer leader than the known one (KIP-320).

        The metadata then names a former leader. If that is cut off, its log may be shorter, and it would return
        OFFSET_OUT_OF_RANGE.
        """
        return 0 <= self.current_leader_epoch < self.fetch_epoch

    def update_leader(self, metadata: ClusterMetadata) -> None:
        """Take the leader from new metadata; another leader or epoch makes the position unvalidated."""
        self.metadata = metadata
        topic = metadata.topics.get(self.partition.topic)
        known = topic.partitions.get(self.partition.partition) if topic is not None else None
        if topic is None or known is None:
            self.leader = None
            return
        leader = known.leader if known.leader in metadata.nodes else None
        if (leader, known.leader_epoch) != (self.leader, self.current_leader_epoch):
            self.is_validated = False
        self.leader, self.current_leader_epoch, self.topic_id = leader, known.leader_epoch, topic.topic_id

    @property
    def has_buffered(self) -> bool:
        """Return whether fetched records are left to return."""
        return bool(self.buffered_bytes) or self.has_pending

    def pause(self) -> None:
        """Stop fetching and returning records; buffered ones are copied, so that their responses can be freed."""
        self.end_run()
        self.is_paused = True
        self.buffers = deque(deque(_copied(list(some))) for some in self.buffers if some)
        if self.batch is not None:
            (self.batch,) = _copied([self.batch])

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position and discard buffered records."""
        self._forget()
        self.position = self.fetch_position = offset
        self.leader_epoch = self.fetch_epoch = leader_epoch
        self.reset = None

    def drop_buffered(self) -> None:
        """Discard buffered records and fetch them again."""
        assert self.position is not None
        self.seek(self.position, self.leader_epoch)

    def request_offset_reset(self, timestamp: int) -> None:
        """Clear the position, and look it up with ListOffsets for `timestamp` (ms, `EARLIEST` or `LATEST`)."""
        self._forget()
        self.position = None
        self.reset = timestamp

    def update_end(self, answer: FetchedPartition) -> None:
        """Store the high watermark and the last stable offset of a fetch response."""
        self.high_watermark = answer.high_watermark
        self.last_stable_offset = answer.last_stable_offset if answer.last_stable_offset >= 0 else None

    def fetched(self, answer: FetchedPartition, *, check_crcs: bool) -> None:
        """Buffer the records of a response to a fetch from `fetch_position`; a corrupt batch sets `error`."""
        if not answer.records:
            return
        try:
            raw, next_offset, epoch = self._split(memoryview(answer.records), answer, check_crcs=check_crcs)
        except CorruptBatchError as error:
            self.error = CorruptRecordsError(self.partition, self.fetch_position, error.next_offset, error)
            return
        if next_offset == self.fetch_position:
            cut = CorruptBatchError("no complete batch", next_offset=next_offset)
            self.error = CorruptRecordsError(self.partition, next_offset, next_offset, cut)
            return
        self.fetch_position, self.fetch_epoch = next_offset, epoch
        if raw:
            self.buffers.append(deque(_copied(raw) if self.is_paused else raw))
            self.buffered_bytes += sum(each.size for each in raw)
        elif not self.has_buffered:
            # Only markers and aborted transactions: no record to return, but the position moves past them.
            self.position, self.leader_epoch = next_offset, epoch

    @property
    def has_pending(self) -> bool:
        """Return whether decoded records are left to return."""
        self._move_past_returned()
        return self.taken < len(self.pending)

    def take(self, limit: int, deserialize: Deserialize | None = None) -> list[ConsumerRecord]:
        """Return at most `limit` records, decoding one batch at a time, and move the position past them.

        If `deserialize` fails for a record, the position stays at that record and `error` is set.
        """
        self.end_run()
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and self.error is None and (self.has_pending or self._decode_next()):
            some = self.pending[self.taken : self.taken + limit - len(taken)]
            if deserialize is not None:
                some, self.error = deserialize(some)
            taken += some
            self._hand_out(self.taken + len(some))
        return taken

    def begin_run(
        self, limit: int, on_returned: Callable[[int], None], deserialize: Deserialize | None = None
    ) -> list[ConsumerRecord]:
        """Return at most `limit` records of one batch, in reverse order, for an iteration that pops them.

        The position moves past each record that is popped; `on_returned` gets their number, later. `error` is set if
        the first record cannot be decoded or deserialized.
        """
        self.end_run()
        while self.error is None and (self.has_pending or self._decode_next()):
            some, error = self.pending[self.taken : self.taken + limit], None
            if deserialize is not None:
                some, error = deserialize(some)
            if some:
                self.run, self.run_size, self.on_returned = some[::-1], len(some), on_returned
                return self.run
            self.error = error
        return []

    def end_run(self) -> None:
        """Take back the records that an iteration has not popped; they are returned again."""
        self._move_past_returned()
        self.run.clear()
        self.run_size = 0

    def _move_past_returned(self) -> None:
        returned, self.run_size = self.run_size - len(self.run), len(self.run)
        if returned:
            self._hand_out(self.taken + returned)
            self.on_returned(returned)

    def take_raw(self, max_bytes: int) -> RawBatch | None:
        """Return adjacent undecoded batches, at most about `max_bytes` decompressed, and move the position past them.

        Returns at least one batch, None if none is buffered.
        """
        self.end_run()
        if self.has_pending:
            # An earlier poll returned some records of this batch.
            assert self.batch is not None
            raw = self.batch._replace(from_offset=self.pending[self.taken].offset)
            self._hand_out(len(self.pending))
        else:
            first = self._next_batch()
            if first is None:
                return None
            raw = self._joined(first, max_bytes)
        self.position, self.leader_epoch = self._position_after(raw), raw.leader_epoch
        return raw

    def _joined(self, first: RawBatch, max_bytes: int) -> RawBatch:
        """Return `first` and the buffered batches adjacent to it as one."""
        parts, decompressed_bytes = [first], first.decompressed_bytes
        while self.buffers and self.buffers[0] and self.buffers[0][0].start == parts[-1].end:
            decompressed_bytes += self.buffers[0][0].decompressed_bytes
            if decompressed_bytes > max_bytes:
                break
            parts.append(self.buffers[0].popleft())
            self.buffered_bytes -= parts[-1].size
        if len(parts) == 1:
            return first
        last = parts[-1]
        return first._replace(
            end=last.end,
            next_offset=last.next_offset,
            leader_epoch=last.leader_epoch,
            decompressed_bytes=sum(each.decompressed_bytes for each in parts),
            parts=tuple(parts),
        )

    def give_back(self, raw: RawBatch) -> None:
        """Buffer again the batches that the last `take_raw` returned, and move the position back.

        The epoch of the record before them is not known any more.
        """
        self.buffers.appendleft(deque(raw.parts or [raw]))
        self.buffered_bytes += raw.size
        self.position, self.leader_epoch = raw.from_offset, -1

    def lag(self, *, is_committed_only: bool) -> int | None:
        """Return the number of offsets from the position to the high watermark, None if unknown.

        With `is_committed_only` (read_committed), the last stable offset is the end.
        """
        end = self.last_stable_offset if is_committed_only else self.high_watermark
        return None if end is None or self.position is None else max(end - self.position, 0)

    def _hand_out(self, count: int) -> None:
        """Mark the first `count` records of `pending` as returned."""
        self.taken = count
        if count < len(self.pending):
            self.position = self.pending[count].offset
        elif self.batch is not None:
            self.position = self._position_after(self.batch)
            self.pending, self.taken, self.batch = [], 0, None

    def _position_after(self, raw: RawBatch) -> int:
        """Return the position after `raw`; if no batch is buffered, also after the unreadable batches that follow."""
        return raw.next_offset if self.buffered_bytes else self.fetch_position

    def _decode_next(self) -> bool:
        """Decode the next batch into `pending`; return False if there is none, or if it is corrupt (`error` is set)."""
        raw = self._next_batch()
        if raw is None:
            return False
        try:
            self.pending = self._decode(raw)
        except KafkaError as error:
            self.drop_buffered()
            self.error = CorruptRecordsError(self.partition, raw.from_offset, raw.next_offset, error)
            return False
        epoch = raw.leader_epoch
        self.batch, self.leader_epoch = raw, epoch
        # Compaction may have removed all records of a batch.
        self._hand_out(0)
        return True

    def _decode(self, raw: RawBatch) -> list[ConsumerRecord]:
        topic, partition = self.partition
        start, epoch, timestamp_type = raw.from_offset, raw.leader_epoch, raw.timestamp_type
        header, data = open_batch(raw.buffer)
        rows = record_rows(header, data)
        if rows is None:
            return [
                ConsumerRecord(topic, partition, *record, epoch, timestamp_type)
                for record in parse_records(header, data)
                if record.offset >= start
            ]
        new = tuple.__new__
        return [
            new(
                ConsumerRecord,
                (
                    topic,
                    partition,
                    offset,
                    timestamp,
                    None if key_at < 0 else data[key_at:key_end],
                    None if value_at < 0 else data[value_at:value_end],
                    () if headers < 0 else headers_at(data, headers),
                    epoch,
                    timestamp_type,
                ),
            )
            for offset, timestamp, key_at, key_end, value_at, value_end, headers in rows
            if offset >= start
        ]

    def _next_batch(self) -> RawBatch | None:
        while self.buffers:
            if self.buffers[0]:
                raw = self.buffers[0].popleft()
                self.buffered_bytes -= raw.size
                return raw
            self.buffers.popleft()
        return None

    def _split(
        self, records: memoryview, answer: FetchedPartition, *, check_crcs: bool
    ) -> tuple[list[RawBatch], int, int]:
        """Return the readable batches, the offset after all batches, and the leader epoch of the last batch."""
        next_offset, epoch = self.fetch_position, self.fetch_epoch
        raw: list[RawBatch] = []
        for position, header, readable in readable_batches(records, answer.aborted_transactions, check_crcs=check_crcs):
            if readable and header.next_offset > self.fetch_position:
                raw.append(
                    RawBatch(
                        self.partition,
                        records,
                        position,
                        position + header.size,
                        max(self.fetch_position, header.base_offset),
                        header.next_offset,
                        header.partition_leader_epoch,
                        int(header.is_log_append_time),
                        header.size if header.codec == Codec.NONE else header.size * _ASSUMED_COMPRESSION_RATIO,
                    )
                )
            next_offset, epoch = max(next_offset, header.next_offset), header.partition_leader_epoch
        return raw, next_offset, epoch

    def _forget(self) -> None:
        self.end_run()
        self.version += 1
        self.buffers.clear()
        self.buffered_bytes = 0
        self.pending, self.taken, self.batch = [], 0, None
        self.error = None
        self.is_fetching = self.is_validated = False


def _copied(batches: list[RawBatch]) -> list[RawBatch]:
    """Return adjacent batches with a copy of their bytes, so that the response can be freed."""
    start = batches[0].start
    copy = memoryview(bytes(batches[0].fetched[start : batches[-1].end]))
    return [each._replace(fetched=copy, start=each.start - start, end=each.end - start) for each in batches]


class SubscriptionState:
    """The states of the assigned partitions, iterated in the order in which they last returned records."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, TopicPartitionState] = {}

    def __iter__(self) -> Iterator[TopicPartitionState]:
        return iter(list(self._states.values()))

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def get(self, partition: TopicPartition) -> TopicPartitionState | None:
        return self._states.get(partition)

    def __getitem__(self, partition: TopicPartition) -> TopicPartitionState:
        """Return the state of a partition. Raises `KafkaError` if it is not assigned."""
        state = self._states.get(partition)
        if state is None:
            raise KafkaError(ErrorCode.invalid_request, f"partition {partition} is not assigned to this consumer")
        return state

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, and sort them; those assigned before keep their state."""
        wanted = sorted(partitions)
        before = self._states
        self._states = {partition: before.get(partition) or TopicPartitionState(partition) for partition in wanted}
        for partition, state in before.items():
            if partition not in self._states:
                state.end_run()

    def move_to_end(self, state: TopicPartitionState) -> None:
        if self._states.pop(state.partition, None) is not None:
            self._states[state.partition] = state
