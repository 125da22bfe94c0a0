"""Places the rows of one `send_arrow` call on partitions and encodes them as record batches.

Batches are encoded when there is memory for them, in turn for all partitions, so that all leaders are busy.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from odradek.clients.metadata import ClusterMetadata
from odradek.clients.producer.placement import RecordPlacer
from odradek.model import OdradekError, TopicPartition
from odradek.partitioners import KeyRule
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from odradek.columns import EncodedBatch, ProduceRows


class SentRows(NamedTuple):
    """The rows of a table in one record batch, in the order of their offsets.

    `rows` are row numbers in the table; `offsets` is a future of their offsets (-1 if unknown, as with `acks=0`), or of
    the batch's error.
    """

    partition: TopicPartition
    rows: "NDArray[np.int64]"
    offsets: "asyncio.Future[NDArray[np.int64]]"


class RowOffsets:
    """Completes the offsets of a `SentRows`, in parts if its batch is split."""

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[NDArray[np.int64]] = asyncio.get_running_loop().create_future()
        self._offsets = np.full(count, -1, np.int64)
        self._missing = count

    def delivered(self, start: int, count: int, base_offset: int) -> None:
        if base_offset >= 0:
            self._offsets[start : start + count] = np.arange(base_offset, base_offset + count)
        self._missing -= count
        if not self._missing and not self.future.done():
            self.future.set_result(self._offsets)

    def failed(self, error: OdradekError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            # Mark the exception as retrieved, for callers that only flush: the sender logs one line per batch.
            self.future.exception()


class _Cursor:
    """The rows of one Arrow batch for one partition; those before `start` are encoded."""

    def __init__(self, source: "ProduceRows", encoder: Any, rows: "NDArray[np.int64]", partition: int) -> None:
        self.source = source
        self.encoder = encoder
        self.rows = rows
        self.partition = partition
        self.start = 0
        self._ends = np.cumsum(source.sizes[rows])

    @property
    def remaining_bytes(self) -> int:
        """Return an upper bound of the size of the rows that are not encoded yet."""
        before = self._ends[self.start - 1] if self.start else 0
        return int(self._ends[-1] - before)


class ArrowRows:
    """The rows of one `send_arrow` call, by partition. The rows of a partition keep their order.

    Raises `KafkaError` for an unknown partition and for a partitioner that fails.
    """

    def __init__(
        self,
        sources: Sequence["ProduceRows"],
        topic: str,
        placer: RecordPlacer,
        metadata: ClusterMetadata,
        *,
        default_timestamp_ms: int,
        max_batch_bytes: int,
    ) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._cursors: deque[_Cursor] = deque()
        for source in sources:
            if not source.count:
                continue
            encoder = source.encoder(default_timestamp_ms=default_timestamp_ms)
            placed = _placed(source, topic, placer, metadata)
            self._place_together(source, placed, topic, placer, metadata)
            for partition, rows in _grouped(placed):
                self._cursors.append(_Cursor(source, encoder, rows, partition))

    @property
    def next_bytes(self) -> int:
        """Return an upper bound of the next batch's size; 0 without a next batch."""
        if not self._cursors:
            return 0
        return min(self._cursors[0].remaining_bytes + HEADER_SIZE, self._max_batch_bytes)

    def encode(self, codec: Codec, level: int | None) -> tuple[int, "EncodedBatch", "NDArray[np.int64]"]:
        """Encode the next batch; return its partition, the batch, and its row numbers in the table."""
        cursor = self._cursors.popleft()
        encoded = cursor.encoder.encode(
            cursor.rows, cursor.start, codec=codec, level=level, max_bytes=self._max_batch_bytes
        )
        end = cursor.start + encoded.record_count
        rows = cursor.rows[cursor.start : end] + cursor.source.first_row
        cursor.start = end
        if end < len(cursor.rows):
            self._cursors.append(cursor)
        return cursor.partition, encoded, rows

    def _place_together(
        self, source: "ProduceRows", placed: Any, topic: str, placer: RecordPlacer, metadata: ClusterMetadata
    ) -> None:
        """Choose a partition for rows with partition -1: the rows of a whole batch get the same one."""
        rows = np.flatnonzero(placed < 0)
        batches = np.cumsum(source.sizes[rows]) // self._max_batch_bytes
        for some in np.split(rows, np.flatnonzero(np.diff(batches)) + 1) if len(rows) else ():
            partition = placer.partition(topic, None, None, metadata)
            placed[some] = partition
            placer.on_batch(topic, partition, int(source.sizes[some].sum()), metadata)


def checked_rows(data: Any, partition: int | None, *, max_record_bytes: int) -> "list[ProduceRows]":
    """Check Arrow data and return its rows; `partition`, if given, is for all rows.

    Raises `TypeError` for other data, `KafkaError` for an invalid column or row.
    """
    from odradek.columns import ProduceRows, record_batches

    sources: list[ProduceRows] = []
    count = 0
    for batch in record_batches(data):
        sources.append(ProduceRows(batch, first_row=count, partition=partition, max_record_bytes=max_record_bytes))
        count += batch.num_rows
    return sources


def _placed(source: "ProduceRows", topic: str, placer: RecordPlacer, metadata: ClusterMetadata) -> Any:
    """Return the partition of each row; -1 where the partitioner chooses one partition for many rows."""
    known = metadata.topics[topic].partitions
    if source.has_partitions:
        return source.partitions(topic, set(known))
    if placer.key_rule is KeyRule.MURMUR2:
        return source.key_partitions(len(known))
    if placer.key_rule is KeyRule.IGNORED:
        return np.full(source.count, -1, np.int64)
    placed = (placer.partition(topic, key, value, metadata) for key, value in source.keys_and_values())
    return np.fromiter(placed, np.int64, source.count)


def _grouped(partitions: Any) -> Iterator[tuple[int, Any]]:
    """Yield each partition with its row numbers, ascending; `partitions` has the partition of each row."""
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
