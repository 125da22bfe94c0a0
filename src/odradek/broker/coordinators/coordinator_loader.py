"""Loads a coordinator: reads the records of an internal topic's partition into the coordinator's state machine."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

from msgspec import Struct

from odradek.broker.coordinators.machine import NO_PRODUCER, Machine, RecordCodec
from odradek.broker.log.errors import DamagedSegmentError
from odradek.broker.log.log import Log
from odradek.broker.log.names import parent_of
from odradek.broker.replication.partition import ACKS_ALL, ACKS_LEADER, Partition
from odradek.broker.turns import cooperatively_by_time
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, verify_crc
from odradek.protocol.batches.records import decode_records
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError

READ_BYTES: Final = 1 << 20
"""Limit of one read from the log."""
_MOST_NAMED: Final = 3
"""Limit of malformed records and batches that a load reports one by one."""
_RECORDS_PER_FREEZE: Final = 50_000
"""Records between two calls of `gc.freeze`; each call also keeps the process's unreachable objects of that time."""
_log = logging.getLogger("odradek.coordinators")

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


class LoadSummary(Struct, kw_only=True):
    """The result of a load: numbers of records, and the offset after the last one read."""

    end_offset: int
    records: int = 0
    unknown: int = 0
    """Records of types that only newer releases know."""
    malformed: int = 0
    damaged: int = 0
    """Number of offsets that were skipped because the file is damaged."""
    is_committed: bool = False


async def load(
    partition: Partition, machine: Machine[RequestT, RecordT], codec: RecordCodec[RecordT], *, timeout_ms: int
) -> LoadSummary:
    """Apply a partition's records up to the log end offset, and wait up to `timeout_ms` until they are committed.

    Records above the high watermark are applied too: a new leader learns the high watermark late. Records that cannot
    be decoded are skipped and logged. Raises `KafkaError` if this broker no longer leads the partition, records are
    damaged here and another replica is in sync, or a write exceeds `timeout_ms`.
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
    """Reads a partition's log into a machine, from the log start offset."""

    def __init__(self, partition: Partition, machine: Machine[RequestT, RecordT], codec: RecordCodec[RecordT]) -> None:
        self.summary = LoadSummary(end_offset=partition.log.log_start_offset)
        self._partition = partition
        self._machine = machine
        self._codec = codec
        self._frozen_records = 0
        self._monotonic = asyncio.get_running_loop().time

    async def read_to_end(self, timeout_ms: int) -> None:
        """Apply all records, including new ones. Raises `KafkaError` if a read fails, or a write takes too long."""
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
                summary.end_offset = written  # compaction has removed the remaining records
            elif summary.end_offset == before:
                raise CorruptBatchError(f"the batches at offset {before} have offsets before it or behind {written}")
            await asyncio.sleep(0)

    def _exempt_from_gc(self) -> None:
        """Exempt loaded objects from garbage collection, which would traverse them again and again."""
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
        """Return batches from `summary.end_offset`; skip damaged ones, or raise if another replica is in sync."""
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
        """Count malformed records, and log the first ones."""
        if self.summary.malformed < _MOST_NAMED:
            _log.warning("%s of %s is malformed: %s", what, self._partition.topic_partition, error)
        self.summary.malformed += count


def _valid_batches(data: Buffer, offset: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of `data` with offsets from `offset` to `end`, up to the first damaged one.

    The next read starts at the damaged batch, so that the log detects it. No checksum covers a batch's base offset.
    """
    with suppress(CorruptBatchError):
        for position, header in iterate_batches(data):
            is_next = offset < header.next_offset <= end and (not position or header.base_offset >= offset)
            if not is_next or not verify_crc(data, position, header):
                return
            offset = header.next_offset
            yield header, memoryview(data)[position : position + header.size]


def _first_readable(log: Log, offset: int, end: int) -> int:
    """Return an offset after the damage at `offset` where reads succeed again, `end` at the latest."""

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


async def _wait_until(partition: Partition, offset: int, acks: int) -> bool:
    """Return True when the log up to `offset` is as safe as `acks` says, False if too few replicas are in sync."""
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
