"""`SimpleConsumer` reads partitions from offsets that the caller keeps, without a group (SPEC 5)."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients.arguments import (
    Partition,
    PartitionT,
    addresses_of,
    numbers_by_partition,
    partition_of,
    partitions_of,
)
from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.consumer import ConsumerRecord
from odradek.clients.fetch import CorruptRecordsError, FetchLimits, FetchPosition, readable_runs
from odradek.clients.leader_fetch import LeaderAnswer, check_topic_id, fetch_from_leaders
from odradek.clients.metadata import Node
from odradek.clients.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.clients.retry import retrying
from odradek.clients.setting_types import FetchConfig
from odradek.clients.settings import FetchSettings, make_settings
from odradek.model import KafkaError, TopicPartition, UnavailableError
from odradek.protocol.batches.compression import MAX_DECOMPRESSED_BYTES
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import CONTROL, iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import Runtime, system_runtime

if TYPE_CHECKING:
    import pyarrow

R = TypeVar("R")
_MAX_OFFSET = 2**63 - 1
_DECODED_AT_ONCE = 16 << 10
"""Bytes of records that are decoded on the event loop: fewer take less time than another thread."""
_LEAST_BATCH_BYTES = 16 << 20
"""The least limit of one batch's decompressed records; it is four times `fetch_max_bytes` if that is more."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in a partition; `coordinator_epoch` is that of its coordinator."""

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class Fetched(Struct, Generic[R], frozen=True, kw_only=True):
    """The records of one fetch, and the partition's offsets at that time; -1 means unknown.

    `next_offset` is the offset to fetch next, after any control and aborted batches. `markers`, which `fetch_arrow`
    leaves out, are those between `offset` and `next_offset`. `leader_epoch` is the epoch of
    the last record. `topic_id` is None from brokers before Kafka 2.8.
    """

    partition: TopicPartition
    records: R
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    topic_id: uuid.UUID | None
    markers: tuple[TransactionMarker, ...] = ()


class PartitionLeader(Struct, frozen=True, kw_only=True):
    """A partition's leader, its leader epoch, and the broker ids of its replicas and in-sync replicas."""

    partition: TopicPartition
    topic_id: uuid.UUID | None
    leader: Node
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class SimpleConsumer:
    """A consumer for applications that keep their own offsets, for a Kafka cluster: no group, no positions.

        async with SimpleConsumer("localhost:9092") as consumer:
            fetched = await consumer.fetch(("flights", 0), 1000)
            print(fetched.records, fetched.next_offset)

    Settings are those of `odradek.clients.settings.FetchSettings`. Every call finds the leaders and retries for
    `default_api_timeout_ms`, then raises the last `KafkaError` or `UnavailableError`. Raises `TopicRecreatedError` if a
    topic was deleted and created again since this consumer first fetched it.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        runtime: Runtime | None = None,
        **settings: Unpack[FetchConfig],
    ) -> None:
        self._settings = make_settings(
            FetchSettings, {**settings, "bootstrap_servers": addresses_of(bootstrap_servers)}
        )
        self._cluster = Cluster(self._settings, runtime or system_runtime())
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._is_started = self._is_closed = False

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. Raises `UnavailableError` if no broker answers in time."""
        if not self._is_started:
            try:
                await self._cluster.start()
            except BaseException:
                await self._cluster.close()
                raise
            self._is_started = True
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()
        self._is_started, self._is_closed = False, True

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- records ------------------------------------------------------------------------------------------------

    async def fetch(
        self,
        partition: Partition,
        offset: int,
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Fetched[tuple[ConsumerRecord, ...]]:
        """Fetch records from `offset` with one request: at most `max_bytes`, but at least one whole batch.

        The broker waits up to `max_wait_ms` for `min_bytes`; if no records come, `records` is empty. Defaults
        are `max_partition_fetch_bytes`, `fetch_max_wait_ms` and `fetch_min_bytes`. `topic_id`, if the caller has kept
        it, is the id of the offset's topic. Raises `OffsetOutOfRangeError`, with the log's first and end offset, and
        `CorruptRecordsError` if the first batch cannot be read. Batches are decoded until `fetch_max_bytes` of records
        are in memory: compressed ones may be far larger than they were on the wire. A batch of more than four times as
        many, and of 16 MiB, cannot be read.
        """
        limits = self._limits(max_wait_ms, min_bytes)
        answer = await self._fetch_one(partition, offset, limits, max_bytes, topic_id)
        return await self._decoded(partition_of(partition), offset, answer)

    async def fetch_many(
        self,
        offsets: Mapping[PartitionT, int],
        *,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
    ) -> dict[TopicPartition, Fetched[tuple[ConsumerRecord, ...]]]:
        """Fetch partitions from `offsets`, with one request per leader; `max_bytes` limits each partition.

        Raises the error of one partition that cannot be fetched.
        """
        limits = self._limits(max_wait_ms, min_bytes)
        wanted = numbers_by_partition("an offset", offsets)
        answers = await self._fetch(wanted, limits, max_bytes, self._topic_ids)
        return {each: await self._decoded(each, wanted[each], answer) for each, answer in answers.items()}

    async def fetch_arrow(
        self,
        partition: Partition,
        offset: int,
        *,
        columns: Iterable[str] | None = None,
        max_bytes: int | None = None,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> "Fetched[pyarrow.Table]":
        """Fetch as `fetch` does, into an Arrow table of `columns` (`odradek.columns.COLUMNS`, all by default).

        Needs the extra `arrow`.
        """
        limits = self._limits(max_wait_ms, min_bytes)
        answer = await self._fetch_one(partition, offset, limits, max_bytes, topic_id)
        where = partition_of(partition)
        buffers, next_offset = self._readable(where, offset, answer)
        table = _arrow_table(where, buffers, offset, _MAX_OFFSET, columns)
        return _fetched(where, table, next_offset, answer, buffers)

    async def read(
        self, partition: Partition, start: int, end: int | None = None, *, topic_id: uuid.UUID | None = None
    ) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the records of `start` ≤ offset < `end`, by default the log's end offset when reading starts.

        If `end` is beyond the log's end, waits for records, but for each fetch at most `default_api_timeout_ms`. The
        next fetch is in flight while records are processed. Raises `OffsetOutOfRangeError` if the log lacks an offset.
        """
        where = partition_of(partition)
        end = await self._log_end(where, start) if end is None else end
        async with aclosing(self._buffers(where, start, end, topic_id)) as buffers:
            async for buffer in buffers:
                for batch in _batches(where, buffer, start, end):
                    for record in batch:
                        yield record

    async def read_arrow(
        self,
        partition: Partition,
        start: int,
        end: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> "pyarrow.Table":
        """Return the records of `start` ≤ offset < `end` (by default the log's end offset) as one Arrow table.

        The whole range is in memory. Needs the extra `arrow`.
        """
        where = partition_of(partition)
        end = await self._log_end(where, start) if end is None else end
        buffers = [buffer async for buffer in self._buffers(where, start, end, topic_id)]
        return _arrow_table(where, buffers, start, end, columns)

    # ---- leaders and offsets ------------------------------------------------------------------------------------

    async def find_leader(self, partition: Partition) -> PartitionLeader:
        """Return a partition's leader and replicas from a new metadata response."""
        where = partition_of(partition)

        async def attempt() -> PartitionLeader:
            await self._cluster.refresh(timeout_ms=self._cluster.timeout_ms)
            leader = await self._cluster.leader(where)
            metadata = self._cluster.metadata
            found = metadata.topics[where.topic].partitions[where.partition]
            return PartitionLeader(
                partition=where,
                topic_id=metadata.topics[where.topic].topic_id,
                leader=metadata.nodes[leader],
                leader_epoch=found.leader_epoch,
                replicas=found.replicas,
                isr=found.isr,
            )

        self._check_started()
        return await retrying(self._cluster, attempt)

    async def partitions_for_topic(self, topic: str) -> tuple[int, ...]:
        """Return the topic's partition numbers. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
        self._check_started()
        return (await self._cluster.topic(topic)).numbers

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = await self._list_offsets(dict.fromkeys(partitions_of(partitions), EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition (with `read_committed`, the last stable offset)."""
        found = await self._list_offsets(dict.fromkeys(partitions_of(partitions), LATEST))
        return {partition: each.offset for partition, each in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionT, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, by partition, the first offset at or after its timestamp; None if all records are earlier."""
        found = await self._list_offsets(numbers_by_partition("a time in ms", timestamps_ms))
        return {partition: each if each.offset >= 0 else None for partition, each in found.items()}

    # ---- helper methods -----------------------------------------------------------------------------------------

    def _check_started(self) -> None:
        if self._is_closed:
            raise UnavailableError("the consumer was closed: create another one")
        if not self._is_started:
            raise UnavailableError(
                "the consumer is not started: use it in an `async with` block (`with`, if it is a blocking one)"
            )

    def _limits(self, max_wait_ms: int | None, min_bytes: int | None) -> FetchLimits:
        settings = self._settings
        return FetchLimits(
            max_wait_ms=settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=settings.fetch_min_bytes if min_bytes is None else min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level,
        )

    async def _fetch_one(
        self,
        partition: Partition,
        offset: int,
        limits: FetchLimits,
        max_bytes: int | None,
        topic_id: uuid.UUID | None,
    ) -> LeaderAnswer:
        where = partition_of(partition)
        ids = self._expected_ids(where.topic, topic_id)
        return (await self._fetch({where: offset}, limits, max_bytes, ids))[where]

    def _expected_ids(self, topic: str, topic_id: uuid.UUID | None) -> Mapping[str, uuid.UUID | None]:
        """Return the ids that topics must have, by name: the caller's `topic_id`, or those of the first fetches."""
        return self._topic_ids if topic_id is None else {topic: topic_id}

    async def _fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        limits: FetchLimits,
        max_bytes: int | None,
        topic_ids: Mapping[str, uuid.UUID | None],
    ) -> dict[TopicPartition, LeaderAnswer]:
        self._check_started()
        most = self._settings.max_partition_fetch_bytes if max_bytes is None else max_bytes
        answers = await fetch_from_leaders(
            self._cluster,
            {partition: FetchPosition(offset, most) for partition, offset in offsets.items()},
            limits,
            topic_ids=topic_ids,
            purpose=ConnectionPurpose.FETCH,
        )
        for partition, answer in answers.items():
            self._topic_ids.setdefault(partition.topic, answer.topic_id)
        return answers

    async def _log_end(self, partition: TopicPartition, start: int) -> int:
        """Return the end or last stable offset. Raises `OffsetOutOfRangeError` if `start` is beyond the log."""
        end = (await self.end_offsets([partition]))[partition]
        if start > end:
            await self.fetch(partition, start, max_wait_ms=0)
        return end

    async def _buffers(
        self, partition: TopicPartition, start: int, end: int, topic_id: uuid.UUID | None
    ) -> AsyncGenerator[memoryview, None]:
        self._check_started()
        settings = self._settings
        reader = PartitionReader(
            self._cluster,
            partition,
            start,
            end,
            isolation_level=settings.isolation_level,
            max_bytes=settings.max_partition_fetch_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            check_crcs=settings.check_crcs,
            topic_id=self._expected_ids(partition.topic, topic_id).get(partition.topic),
        )
        # `aclosing` cancels the reader's fetch in flight at once, not at garbage collection.
        async with aclosing(aiter(reader)) as buffers:
            async for buffer in buffers:
                self._topic_ids.setdefault(partition.topic, reader.topic_id)
                yield buffer

    async def _decoded(
        self, partition: TopicPartition, offset: int, answer: LeaderAnswer
    ) -> Fetched[tuple[ConsumerRecord, ...]]:
        """Decode a response; many records, or compressed ones, beside the event loop."""
        buffers, next_offset = self._readable(partition, offset, answer)
        is_compressed = any(header.codec for buffer in buffers for _, header in iterate_batches(buffer))

        def decode() -> Fetched[tuple[ConsumerRecord, ...]]:
            return self._decoded_buffers(partition, offset, answer, buffers, next_offset)

        if is_compressed or sum(map(len, buffers)) > _DECODED_AT_ONCE:
            with suppress(OSError):  # no thread can be started
                return await self._cluster.runtime.worker.submit(decode)
        return decode()

    def _decoded_buffers(
        self,
        partition: TopicPartition,
        offset: int,
        answer: LeaderAnswer,
        buffers: list[memoryview],
        next_offset: int,
    ) -> Fetched[tuple[ConsumerRecord, ...]]:
        records: list[ConsumerRecord] = []
        left = self._settings.fetch_max_bytes
        most = min(max(_LEAST_BATCH_BYTES, 4 * left), MAX_DECOMPRESSED_BYTES)
        try:
            for batch in (
                each for buffer in buffers for each in _batches(partition, buffer, offset, _MAX_OFFSET, most)
            ):
                if left <= 0 and batch:
                    next_offset = batch[0].offset
                    break
                records += batch
                left -= sum(len(each.key or b"") + len(each.value or b"") for each in batch)
        except CorruptRecordsError as error:
            if not records:
                raise
            next_offset = error.offset
        fetched = _fetched(partition, tuple(records), next_offset, answer, buffers)
        epoch = records[-1].leader_epoch if records else fetched.leader_epoch
        markers = _markers(memoryview(answer.fetched.records or b""), offset, next_offset)
        return replace(fetched, leader_epoch=epoch, markers=markers)

    def _readable(self, partition: TopicPartition, offset: int, answer: LeaderAnswer) -> tuple[list[memoryview], int]:
        fetched = answer.fetched
        try:
            return readable_runs(
                memoryview(fetched.records or b""),
                fetched.aborted_transactions,
                offset,
                _MAX_OFFSET,
                check_crcs=self._settings.check_crcs,
            )
        except CorruptBatchError as error:
            raise CorruptRecordsError(partition, offset, error.next_offset, error) from error

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._check_started()
        found = await list_offsets(
            self._cluster,
            wanted,
            isolation_level=self._settings.isolation_level,
        )
        for name, topic in self._cluster.metadata.topics.items():
            check_topic_id(name, self._topic_ids.get(name), topic.topic_id)
        return found


def _fetched(
    partition: TopicPartition, records: R, next_offset: int, answer: LeaderAnswer, buffers: list[memoryview]
) -> Fetched[R]:
    epochs = [header.partition_leader_epoch for buffer in buffers for _, header in iterate_batches(buffer)]
    return Fetched(
        partition=partition,
        records=records,
        next_offset=next_offset,
        high_watermark=answer.fetched.high_watermark,
        last_stable_offset=answer.fetched.last_stable_offset,
        log_start_offset=answer.fetched.log_start_offset,
        leader_epoch=epochs[-1] if epochs else -1,
        topic_id=answer.topic_id,
    )


def _batches(
    partition: TopicPartition, buffer: memoryview, start: int, end: int, most_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of each batch. Raises `CorruptRecordsError`."""
    topic, number = partition
    for position, header in iterate_batches(buffer):
        epoch, timestamp_type = header.partition_leader_epoch, int(header.is_log_append_time)
        try:
            records = decode_records(buffer, position, max_bytes=most_bytes)
        except KafkaError as error:
            first = max(start, header.base_offset)
            raise CorruptRecordsError(partition, first, header.next_offset, error) from error
        yield [
            ConsumerRecord(topic, number, *record, epoch, timestamp_type)
            for record in records
            if start <= record[0] < end
        ]


def _markers(records: memoryview, start: int, end: int) -> tuple[TransactionMarker, ...]:
    """Return the transaction markers of `start` ≤ offset < `end`, which `readable_runs` has checked."""
    found = []
    for position, header in iterate_batches(records):
        if header.base_offset >= end:
            break
        if header.attributes & CONTROL and header.base_offset >= start:
            marker = decode_marker(records[position : position + header.size])
            if marker is not None:
                producer = header.max_timestamp, header.producer_id, header.producer_epoch
                is_commit = marker.type is ControlType.COMMIT
                found.append(TransactionMarker(header.base_offset, *producer, is_commit, marker.coordinator_epoch))
        if header.next_offset >= end:
            break  # the next batch may be corrupt
    return tuple(found)


def _arrow_table(
    partition: TopicPartition, buffers: list[memoryview], start: int, end: int, columns: Iterable[str] | None
) -> "pyarrow.Table":
    from odradek.columns import DEFAULT_COLUMNS, RecordColumns, iterate_columns  # names the extra if it is missing

    wanted = DEFAULT_COLUMNS if columns is None else RecordColumns(names=tuple(columns))
    import pyarrow

    topic, number = partition
    pieces = [
        piece
        for buffer in buffers
        for piece in iterate_columns(
            buffer, wanted, topic=topic, partition=number, from_offset=start, up_to_offset=end, check_crcs=False
        )
    ]
    return pyarrow.Table.from_batches(pieces, schema=wanted.schema)
