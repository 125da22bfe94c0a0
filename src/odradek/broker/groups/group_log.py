"""Appends group records to a `__consumer_offsets` partition and replays them.

The state changes when a write's records are committed. The request is answered then, or with an error after
`offsets.commit.timeout.ms`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from odradek.broker.replication.partition import ACKS_ALL, ACKS_LEADER, Partition
from odradek.groups import CoordinatorPlayback
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.control_records import ControlType, decode_marker
from odradek.protocol.record_batch import BatchHeader, iterate_batches
from odradek.protocol.records import decode_records, encode_batch
from odradek.runtime import Clock

GroupRecord = tuple[bytes, bytes | None]
"""Key and value; a value of None is a tombstone."""
READ_BYTES: Final = 1 << 20
"""Bytes replayed per turn of the event loop."""

_RESPONSE_ERRORS: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""Append error → error of the response, which tells the client whether to look for another coordinator."""


class GroupLog:
    """The log of one partition, for its coordinator."""

    def __init__(self, partition: Partition, clock: Clock, commit_timeout_ms: int) -> None:
        self.partition = partition
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._pending_writes: dict[_Write, None] = {}

    def write(
        self,
        records: Sequence[GroupRecord],
        *,
        committed: Callable[[int], None] | None = None,
        answered: Callable[[ErrorCode], None],
    ) -> None:
        """Append `records` as one batch.

        `committed` is called with the first record's offset once all are committed, however late. `answered` is called
        once, after `committed` or with an error. Neither is called before `write` returns.
        """
        loop = asyncio.get_running_loop()
        now_ms = self._clock.now_ms()
        write = _Write(self, committed, answered)
        try:
            batch = encode_batch([(now_ms, key, value, ()) for key, value in records])
            info = self.partition.append_records(memoryview(batch), acks=ACKS_ALL, now_ms=now_ms, from_client=False)
        except KafkaError as error:
            loop.call_soon(write.answer, _RESPONSE_ERRORS.get(error.code, error.code))
            return
        self._pending_writes[write] = None
        write.first_offset = info.first_offset
        write.timer = loop.call_later(
            self._commit_timeout_ms / 1000, write.answer, _RESPONSE_ERRORS[ErrorCode.request_timed_out]
        )
        self.partition.when_acknowledged(info, acks=ACKS_ALL, waiter=write.acknowledged)

    def when_writes_complete(self, settled: Callable[[], None]) -> None:
        """Call `settled` when all current writes are answered; at once if there are none."""
        if not self._pending_writes:
            settled()
        else:
            next(reversed(self._pending_writes)).when_complete.append(settled)

    def close(self, error: ErrorCode) -> None:
        """Answer all current writes with `error`: this broker no longer leads the partition, or stops."""
        for write in tuple(self._pending_writes):
            write.answer(error)

    def kill(self) -> None:
        """Drop all current writes without answering."""
        for write in self._pending_writes:
            if write.timer is not None:
                write.timer.cancel()
        self._pending_writes.clear()

    async def replay(self) -> CoordinatorPlayback:
        """Read the log to its end, a piece per turn, and return when that end is committed.

        The high watermark is not enough: a new leader learns it late, and records after it will be committed unless
        this broker dies first. Clients wait meanwhile, so that no answer is lost in a failover; if too few replicas
        are in sync, they get the replayed state after `offsets.commit.timeout.ms`. Raises `KafkaError` if this broker
        no longer leads.
        """
        log = self.partition.log
        replay = CoordinatorPlayback()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            if offset >= log.written_offset:
                await self._wait_until(log.log_end_offset, ACKS_LEADER)
            data = log.read(offset, READ_BYTES, up_to_offset=log.written_offset)
            next_offset = offset
            for position, header in iterate_batches(data):
                _replay_batch(replay, header, memoryview(data)[position : position + header.size])
                next_offset = header.next_offset
            if next_offset == offset:
                break
            offset = next_offset
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._commit_timeout_ms / 1000):
                await self._wait_until(offset, ACKS_ALL)
        return replay

    async def _wait_until(self, offset: int, acks: int) -> None:
        """Return when all records before `offset` are written or committed, or cannot be for now."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reached(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None or error.code is ErrorCode.not_enough_replicas_after_append:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.partition.when_reached(offset, acks=acks, waiter=reached)
        await future

    def remove(self, write: "_Write") -> None:
        self._pending_writes.pop(write, None)


class _Write:
    """A batch being written."""

    __slots__ = ("_answered", "_committed", "_log", "first_offset", "timer", "when_complete")

    def __init__(
        self, log: GroupLog, committed: Callable[[int], None] | None, answered: Callable[[ErrorCode], None]
    ) -> None:
        self._log = log
        self._committed = committed
        self._answered: Callable[[ErrorCode], None] | None = answered
        self.first_offset = -1
        self.timer: asyncio.TimerHandle | None = None
        self.when_complete: list[Callable[[], None]] = []

    def acknowledged(self, error: KafkaError | None) -> None:
        if error is None:
            if self._committed is not None:
                self._committed(self.first_offset)
            self.answer(ErrorCode.none)
        else:
            self.answer(_RESPONSE_ERRORS.get(error.code, error.code))

    def answer(self, error: ErrorCode) -> None:
        answered, self._answered = self._answered, None
        if answered is None:
            return
        if self.timer is not None:
            self.timer.cancel()
        self._log.remove(self)
        answered(error)
        for settled in self.when_complete:
            settled()


def _replay_batch(replay: CoordinatorPlayback, header: BatchHeader, batch: memoryview) -> None:
    if header.is_control:
        marker = decode_marker(batch)
        if marker is not None:
            replay.end_transaction(header.producer_id, committed=marker.type is ControlType.COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    for record in decode_records(batch):
        replay.record(record.key, record.value, record.offset, producer_id)
