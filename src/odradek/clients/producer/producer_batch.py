"""One record batch of the producer, with the futures of its records; splits if it is too large."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count, repeat
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, field

from odradek.clients.backoff import Backoff
from odradek.model import OdradekError, TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE, TRANSACTIONAL, read_header, write_header
from odradek.protocol.batches.records import NO_HEADERS, Headers, decode_records, encode_headers, encode_rows
from odradek.protocol.varint import varint_size

_MIN_BODY: Final = 5
"""The smallest size in bytes of a record without its length, its key, its value and its headers."""
_TWO_BYTES: Final = 64
_THREE_BYTES: Final = 8192
"""The first numbers whose varints have so many bytes."""


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

    Records are kept in columns, without `keys`, `values` and `headers` once they are encoded in `records`.
    """

    partition: TopicPartition
    number: tuple[int, ...]
    created_at: float
    limit: int = 0
    ratio: float = 1.0
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    rows: EncodedRows | None = None
    first_row: int = 0
    row_count: int = 0
    on_acknowledgement: Callable[[RecordMetadata, OdradekError | None], None] | None = None
    size: int = HEADER_SIZE
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
        return self.records is not None or self.size >= self.limit

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self.row_count or len(self.timestamps)

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

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata] | None,
    ) -> int:
        """Append a record, and return by how many bytes the batch grows; 0 if it is encoded or has no room for it.

        The first record is accepted whatever its size.
        """
        timestamps = self.timestamps
        count = len(timestamps)
        delta = timestamp - timestamps[0] if count else 0
        encoded_headers = encode_headers(headers) if headers else NO_HEADERS
        key_size = 0 if key is None else len(key)
        value_size = 0 if value is None else len(value)
        grown = _MIN_BODY + key_size + value_size + len(encoded_headers)
        if 0 <= delta < _THREE_BYTES > grown and count < _THREE_BYTES:
            # Branches, since calls of `varint_size` would take a fifth of a short `send`.
            if delta >= _TWO_BYTES:
                grown += 1
            if count >= _TWO_BYTES:
                grown += 1
            if key_size >= _TWO_BYTES:
                grown += 1
            if value_size >= _TWO_BYTES:
                grown += 1
            grown += 1 if grown < _TWO_BYTES else 2 if grown < _THREE_BYTES else 3
        else:
            grown += sum(map(varint_size, (delta, count, key_size, value_size))) - 4
            grown += varint_size(grown)
        if self.records is not None or (self.size + grown > self.limit and count):
            return 0
        self.size += grown
        timestamps.append(timestamp)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(encoded_headers)
        if future is not None:
            self.futures.append(future)
        return grown

    def encode(self, codec: Codec, level: int | None = None) -> bytearray:
        """Encode the batch with its producer id and sequence, once; no record can be appended afterwards."""
        if self.records is None:
            self.records = encode_rows(
                self.timestamps,
                self.keys,
                self.values,
                self.headers,
                self.size,
                codec=codec,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
            )
            self.keys, self.values, self.headers = [], [], []
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
        futures = iter(self.futures)
        for position, each in enumerate(decode_records(self.records)):
            record = each.timestamp, each.key, each.value, each.headers, next(futures, None)
            if not parts or not parts[-1].append(*record):
                parts.append(self._part((*self.number, len(parts)), limit, position))
                parts[-1].append(*record)
        self.parts = tuple(parts)
        self._finish()
        return self.parts

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Complete all futures; `base_offset` -1 means unknown, `log_append_time` -1 keeps the records' timestamps."""
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        timestamps = self.timestamps if log_append_time < 0 else repeat(log_append_time)
        topic, partition = self.partition
        # A call of the named tuple's constructor for each record takes longer than the rest.
        new = partial(tuple.__new__, RecordMetadata)
        fields = zip(repeat(topic), repeat(partition), offsets, timestamps, strict=False)
        for future, metadata in zip(self.futures, map(new, fields), strict=False):
            if self.on_acknowledgement is not None:
                self.on_acknowledgement(metadata, None)
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
            limit=limit,
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
