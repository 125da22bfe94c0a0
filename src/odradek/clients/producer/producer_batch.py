"""One record batch of the producer, with the futures of its records; splits if it is too large."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from odradek.clients.backoff import Backoff
from odradek.model import OdradekError, TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE, TRANSACTIONAL, read_header, write_header
from odradek.protocol.batches.records import BatchBuilder, decode_records


class RecordMetadata(NamedTuple):
    """The partition and offset of a record. `offset` is -1 if unknown (as with `acks=0`); `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class EncodedRows(Protocol):
    """Receives the offsets of the rows of a `send_arrow` batch, in parts if it is split, or one error for all."""

    def delivered(self, start: int, count: int, base_offset: int) -> None:
        """Set the offsets of `count` rows from the row `start`; `base_offset` is -1 if unknown."""

    def failed(self, error: OdradekError) -> None: ...


class ProducerBatch(Struct, eq=False):
    """A batch of one partition, with `futures` for its records, or with `rows` if it came from `send_arrow`.

    `number` orders a producer's batches; `created_at` and `retry_at` are monotonic seconds. `size` and `limit` are
    uncompressed bytes: the batch is full at `limit`. `ratio` estimates compressed per uncompressed bytes.
    """

    partition: TopicPartition
    number: tuple[int, ...]
    created_at: float
    builder: BatchBuilder | None = None
    limit: int = 0
    ratio: float = 1.0
    count: int = 0
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    rows: EncodedRows | None = None
    first_row: int = 0
    on_acknowledgement: Callable[[RecordMetadata, OdradekError | None], None] | None = None
    size: int = 0
    attempts: int = 0
    backoff: Backoff | None = None
    retry_at: float = 0.0
    last_error: OdradekError | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    records: bytearray | None = None
    is_done: bool = False
    finished: asyncio.Future[None] | None = None
    parts: tuple["ProducerBatch", ...] = ()

    @property
    def is_full(self) -> bool:
        """Return whether the batch has reached its limit or is encoded."""
        return self.builder is None or self.size >= self.limit

    @property
    def estimated_bytes(self) -> int:
        """Return the bytes in a Produce request: exact for an encoded batch, otherwise an estimate."""
        if self.records is not None:
            return len(self.records)
        return HEADER_SIZE + int((self.size - HEADER_SIZE) * self.ratio)

    @property
    def compression_ratio(self) -> float:
        """Return compressed per uncompressed bytes of an encoded batch, without the batch header."""
        assert self.records is not None
        return (len(self.records) - HEADER_SIZE) / max(self.size - HEADER_SIZE, 1)

    def encode(self, codec: Codec, level: int | None = None) -> bytearray:
        """Encode the batch with its producer id and sequence, once; no record can be appended afterwards."""
        if self.records is None:
            assert self.builder is not None
            self.records = self.builder.build(
                codec,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
            )
            self.builder = None
        return self.records

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Change producer id, epoch and base sequence, also in an encoded batch."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        if self.records is not None:
            header = read_header(self.records)
            write_header(
                self.records,
                header._replace(
                    attributes=header.attributes | (TRANSACTIONAL if self.is_transactional else 0),
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    base_sequence=base_sequence,
                ),
            )

    def split(self, max_bytes: int) -> "tuple[ProducerBatch, ...]":
        """Return batches of at most `max_bytes`, and at most half of this one, with its records, futures and sequences.

        A larger record gets its own batch. This batch must be encoded and have several records. Sizes are uncompressed.
        """
        assert self.records is not None
        assert self.count > 1
        limit = min(max_bytes, self.size // 2)
        parts: list[ProducerBatch] = []
        start = 0
        for position, record in enumerate(decode_records(self.records)):
            fields = (record.timestamp, record.key, record.value, record.headers)
            if not parts or not _builder(parts[-1]).append(*fields):
                parts.append(self._part((*self.number, len(parts)), limit, position))
                start = position
                _builder(parts[-1]).append(*fields)
            parts[-1].count = position - start + 1
            parts[-1].size = _builder(parts[-1]).size
        for part in parts:
            first = part.first_row - self.first_row
            part.futures = self.futures[first : first + part.count]
            part.timestamps = self.timestamps[first : first + part.count]
        self.parts = tuple(parts)
        self._finish()
        return self.parts

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Complete all futures; `base_offset` -1 means unknown, `log_append_time` -1 keeps the records' timestamps."""
        topic, partition = self.partition
        on_acknowledgement = self.on_acknowledgement
        offset, step = (-1, 0) if base_offset < 0 else (base_offset, 1)
        # A call of the named tuple's constructor for each record takes longer than the rest.
        new = tuple.__new__
        for future, timestamp in zip(self.futures, self.timestamps, strict=True):
            time = timestamp if log_append_time < 0 else log_append_time
            metadata = new(RecordMetadata, (topic, partition, offset, time))
            offset += step
            if on_acknowledgement is not None:
                on_acknowledgement(metadata, None)
            if not future.done():
                future.set_result(metadata)
        if self.rows is not None:
            self.rows.delivered(self.first_row, self.count, base_offset)
        self._finish()

    def complete_exceptionally(self, error: OdradekError) -> None:
        for index, future in enumerate(self.futures):
            if self.on_acknowledgement is not None:
                self.on_acknowledgement(RecordMetadata(*self.partition, -1, self.timestamps[index]), error)
            if not future.done():
                future.set_exception(error)
                # Mark the exception as retrieved, for callers that only flush: the sender logs one line per batch.
                future.exception()
        if self.rows is not None:
            self.rows.failed(error)
        self._finish()

    def _part(self, number: tuple[int, ...], limit: int, position: int) -> "ProducerBatch":
        sequence = -1 if self.base_sequence < 0 else (self.base_sequence + position) & 0x7FFFFFFF
        return ProducerBatch(
            self.partition,
            number,
            self.created_at,
            builder=BatchBuilder(limit),
            rows=self.rows,
            first_row=self.first_row + position,
            on_acknowledgement=self.on_acknowledgement,
            last_error=self.last_error,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=self.is_transactional,
        )

    def _finish(self) -> None:
        self.is_done = True
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(None)


def _builder(batch: ProducerBatch) -> BatchBuilder:
    assert batch.builder is not None
    return batch.builder
