"""The records of an internal topic's partition, read into the machine that coordinates it."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from odradek.broker.cooperation import cooperatively_by_time
from odradek.broker.replication.partition import ACKS_ALL, ACKS_LEADER, Waiter
from odradek.coordination import NO_PRODUCER, Machine, RecordCodec
from odradek.log.errors import DamagedSegmentError
from odradek.log.log import AppendInfo
from odradek.log.names import parent_of
from odradek.model import Buffer, ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, verify_crc
from odradek.protocol.batches.records import decode_records
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError

READ_BYTES: Final = 1 << 20
"""Limit of one read from the log."""
_MOST_NAMED: Final = 3
"""Limit of malformed records and batches that are named in the log."""
_RECORDS_PER_FREEZE: Final = 50_000
"""Records between two freezes: each of them also keeps the unreachable objects that the process has at that time."""
_log = logging.getLogger("odradek.coordinators")

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


class ReadableLog(Protocol):
    """The part of a partition's log that a load uses."""

    @property
    def log_start_offset(self) -> int:
        """Return the offset of the first record."""

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""

    @property
    def written_offset(self) -> int:
        """Return the offset behind the last record that is in the file."""

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int) -> Buffer:
        """Return whole batches from the one that contains `offset` on. Raises `DamagedSegmentError`."""


class LedPartition(Protocol):
    """The part of `replication.partition.Partition`, which this broker leads, that coordinators use."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition's topic and number."""

    @property
    def log(self) -> ReadableLog:
        """Return the partition's log."""

    @property
    def has_only_damaged_copy(self) -> bool:
        """Return whether the log is known to be damaged, and no other replica is in sync."""

    def read_error(self, error: DamagedSegmentError) -> KafkaError:
        """Return the error of a read that failed with `error`."""

    def append_error(self) -> KafkaError | None:
        """Return the error that an append with acks=all would raise now; None if it would not."""

    def append_records(self, records: memoryview, *, acks: int, now_ms: int, from_client: bool) -> AppendInfo:
        """Append a batch. Raises `KafkaError`."""

    def when_reached(self, offset: int, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` when all before `offset` is written (acks=1) or committed (acks=all), or with an error."""


@dataclass(slots=True, kw_only=True)
class LoadSummary:
    """The extent of a load."""

    end_offset: int
    records: int = 0
    unknown: int = 0
    """Records of types that this release does not know: a newer release wrote them."""
    malformed: int = 0
    damaged: int = 0
    """Offsets of batches that are damaged in the file."""
    is_committed: bool = False


async def load(
    partition: LedPartition, machine: Machine[RequestT, RecordT], codec: RecordCodec[RecordT], *, timeout_ms: int
) -> LoadSummary:
    """Apply a partition's records up to its end, a piece in each turn, and return when that end is committed.

    The high watermark is not enough: a new leader learns it late, and the records behind it will be committed unless
    this broker dies first. If too few replicas are in sync, the wait ends after `timeout_ms`. Markers that are appended
    during the wait are applied, too. A record that cannot be decoded is skipped, and named in the log. Raises
    `KafkaError` if this broker no longer leads the partition, or if another replica has what is damaged here.
    """
    log, loader = partition.log, CoordinatorLoader(partition, machine, codec)
    summary = loader.summary
    while True:
        await loader.read_to_end(timeout_ms)
        summary.is_committed = False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                summary.is_committed = await _wait_until(partition, summary.end_offset, ACKS_ALL)
        if summary.end_offset >= log.log_end_offset:
            break
    if summary.malformed or summary.unknown:
        _log.warning(
            "Skipped %d malformed records, and %d of unknown types, of %s",
            summary.malformed, summary.unknown, partition.topic_partition,
        )  # fmt: skip
    return summary


class CoordinatorLoader(Generic[RequestT, RecordT]):
    """A reader of a partition's records into a machine, from the start of the log to its end."""

    def __init__(
        self, partition: LedPartition, machine: Machine[RequestT, RecordT], codec: RecordCodec[RecordT]
    ) -> None:
        self.summary = LoadSummary(end_offset=partition.log.log_start_offset)
        self._partition = partition
        self._machine = machine
        self._codec = codec
        self._frozen_records = 0
        self._monotonic = asyncio.get_running_loop().time

    async def read_to_end(self, timeout_ms: int) -> None:
        """Apply all records, those that are appended meanwhile included."""
        log, summary = self._partition.log, self.summary
        while summary.end_offset < log.log_end_offset:
            if summary.end_offset >= log.written_offset:
                await self._wait_until_written(log.log_end_offset, timeout_ms)
            written = log.written_offset
            data = self._read(written)
            before = summary.end_offset
            batches = _valid_batches(data, before, written)
            async for header, batch in cooperatively_by_time(batches, self._monotonic):
                self._apply(header, batch)
                summary.end_offset = header.next_offset
            self._exempt_from_gc()
            if not data:
                summary.end_offset = written  # compaction has removed the rest
            elif summary.end_offset == before:
                raise CorruptBatchError(f"the batches at offset {before} have offsets before it or behind {written}")
            await asyncio.sleep(0)

    def _exempt_from_gc(self) -> None:
        """Exempt what is loaded from garbage collection, which would traverse all of it again and again."""
        if self.summary.records - self._frozen_records >= _RECORDS_PER_FREEZE:
            self._frozen_records = self.summary.records
            gc.freeze()

    async def _wait_until_written(self, offset: int, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await _wait_until(self._partition, offset, ACKS_LEADER)
        except TimeoutError:
            reason = f"the last records of {self._partition.topic_partition} cannot be written to the log"
            raise KafkaError(ErrorCode.kafka_storage_error, reason) from None

    def _read(self, end: int) -> Buffer:
        """Return batches from `summary.end_offset` on. Skips what is damaged, if no other replica has it."""
        log, offset = self._partition.log, self.summary.end_offset
        try:
            return log.read(offset, READ_BYTES, up_to_offset=end)
        except DamagedSegmentError as error:
            if not self._partition.has_only_damaged_copy:
                raise self._partition.read_error(error) from error
            behind = _first_readable(log, offset, end)
            self.summary.damaged += behind - offset
            self.summary.end_offset = behind
            _log.error(
                "Skipped the offsets %d to %d of %s, which are damaged: %s; changes in them, such as committed "
                "offsets, are lost, as no other replica is in sync. `odradek log verify %s` shows the damage",
                offset, behind - 1, self._partition.topic_partition, error, parent_of(error.path),
            )  # fmt: skip
        return b"" if behind == end else log.read(behind, READ_BYTES, up_to_offset=end)

    def _apply(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                self._machine.end_transaction(header.producer_id, committed=marker.type is ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        try:
            records = decode_records(batch)
        except CorruptBatchError as error:
            self._skip(f"Batch of offsets {header.base_offset} to {header.last_offset}", error, header.record_count)
            return
        for each in records:
            try:
                record = self._codec.decode(each.key, each.value)
            except MalformedMessageError as error:
                self._skip(f"Record {each.offset}", error)
                continue
            if record is None:
                self.summary.unknown += 1
                continue
            self.summary.records += 1
            self._machine.apply(record, each.offset, producer_id)

    def _skip(self, what: str, error: KafkaError, count: int = 1) -> None:
        """Count malformed records, and name the first ones."""
        if self.summary.malformed < _MOST_NAMED:
            _log.warning("%s of %s is malformed: %s", what, self._partition.topic_partition, error)
        self.summary.malformed += count


def _valid_batches(data: Buffer, offset: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield batches from `offset` to `end`, up to the first damaged one.

    The next read begins there, so that the log learns of the damage. No checksum covers a batch's offset.
    """
    with suppress(CorruptBatchError):
        for position, header in iterate_batches(data):
            is_next = offset < header.next_offset <= end and (not position or header.base_offset >= offset)
            if not is_next or not verify_crc(data, position, header):
                return
            offset = header.next_offset
            yield header, memoryview(data)[position : position + header.size]


def _first_readable(log: ReadableLog, offset: int, end: int) -> int:
    """Return the offset behind the damage at `offset`, or `end` if nothing behind it can be read."""

    def is_damaged(candidate: int) -> bool:
        try:
            log.read(candidate, 1, up_to_offset=end)
        except DamagedSegmentError:
            return True
        return False

    step = 1
    while is_damaged(min(offset + step, end)):
        step *= 2
    damaged, readable = offset + step // 2, min(offset + step, end)
    while readable - damaged > 1:
        middle = (damaged + readable) // 2
        damaged, readable = (middle, readable) if is_damaged(middle) else (damaged, middle)
    return readable


async def _wait_until(partition: LedPartition, offset: int, acks: int) -> bool:
    """Return whether all records before `offset` are written or committed; False if they cannot be for now."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def reached(error: KafkaError | None) -> None:
        if future.done():
            return
        if error is None or error.code is ErrorCode.not_enough_replicas_after_append:
            future.set_result(error is None)
        else:
            future.set_exception(error)

    partition.when_reached(offset, acks=acks, waiter=reached)
    return await future
