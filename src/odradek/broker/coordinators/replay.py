"""The records of an internal topic's partition, read into the machine that coordinates it."""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from odradek.broker.replication.partition import ACKS_ALL, ACKS_LEADER, Waiter
from odradek.coordination import NO_PRODUCER, Machine, RecordCodec
from odradek.log.log import AppendInfo
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass
from odradek.protocol.control_records import ControlType, decode_marker
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.record_batch import BatchHeader, iterate_batches
from odradek.protocol.records import decode_records
from odradek.runtime import Buffer

READ_BYTES: Final = 1 << 20
"""Bytes that are replayed in a turn of the event loop."""
_MOST_NAMED: Final = 3
_log = logging.getLogger("odradek.coordinators")

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


class ReadableLog(Protocol):
    """A partition's log, as far as a replay reads it."""

    @property
    def log_start_offset(self) -> int:
        """Return the offset of the first record."""

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""

    @property
    def written_offset(self) -> int:
        """Return the end of what is in the file."""

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int) -> Buffer:
        """Return whole batches from the one that has `offset` on."""


class LedPartition(Protocol):
    """A partition that this broker leads, as far as coordinators need it (see `replication.partition`)."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Return its name."""

    @property
    def log(self) -> ReadableLog:
        """Return its log."""

    def append_error(self) -> KafkaError | None:
        """Return why records would be refused now."""

    def append_records(self, records: memoryview, *, acks: int, now_ms: int, from_client: bool) -> AppendInfo:
        """Append a batch. Raises `KafkaError`."""

    def when_reached(self, offset: int, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` when everything before `offset` is committed, or with what went wrong."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """The extent of a replay."""

    end_offset: int
    records: int = 0
    unknown: int = 0
    """Records of types that this release does not know, as a newer one writes them."""
    malformed: int = 0
    is_committed: bool = False


async def replay(
    partition: LedPartition, machine: Machine[RequestT, RecordT], codec: RecordCodec[RecordT], *, timeout_ms: int
) -> Replayed:
    """Apply a partition's records up to its end, a piece in each turn, and return when that end is committed.

    The high watermark is not enough: a new leader learns it late, and the records behind it will be committed unless
    this broker dies first. If too few replicas are in sync, the wait ends after `timeout_ms`. A record that cannot be
    decoded is skipped, and named in the log. Raises `KafkaError` if this broker no longer leads the partition.
    """
    log = partition.log
    found = Replayed(end_offset=log.log_start_offset)
    while found.end_offset < log.log_end_offset:
        if found.end_offset >= log.written_offset:
            await _wait_until(partition, log.log_end_offset, ACKS_LEADER)
        before = found.end_offset
        data = log.read(before, READ_BYTES, up_to_offset=log.written_offset)
        for position, header in iterate_batches(data):
            batch = memoryview(data)[position : position + header.size]
            _apply_batch(partition, machine, codec, header, batch, found)
            found.end_offset = header.next_offset
        if found.end_offset == before:
            break
        await asyncio.sleep(0)
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_ms / 1000):
            found.is_committed = await _wait_until(partition, found.end_offset, ACKS_ALL)
    if found.malformed or found.unknown:
        _log.warning(
            "Skipped %d malformed records, and %d of unknown types, of %s",
            found.malformed, found.unknown, partition.topic_partition,
        )  # fmt: skip
    return found


def _apply_batch(
    partition: LedPartition,
    machine: Machine[RequestT, RecordT],
    codec: RecordCodec[RecordT],
    header: BatchHeader,
    batch: memoryview,
    found: Replayed,
) -> None:
    if header.is_control:
        marker = decode_marker(batch)
        if marker is not None:
            machine.end_transaction(header.producer_id, committed=marker.type is ControlType.COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    for each in decode_records(batch):
        try:
            record = codec.decode(each.key, each.value)
        except MalformedMessageError as error:
            found.malformed += 1
            if found.malformed <= _MOST_NAMED:
                _log.warning("Record %d of %s is malformed: %s", each.offset, partition.topic_partition, error)
            continue
        if record is None:
            found.unknown += 1
            continue
        found.records += 1
        machine.apply(record, each.offset, producer_id)


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
