"""One partition that this broker follows: append the leader's records, and truncate the log where it diverges.

```
fetch from log.written_offset ──► append unchanged ──► written ──► the next fetch shows it to the leader
```
Each response has the leader's high watermark, up to which consumers may read this log (KIP-392).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import DamagedSegmentError
from odradek.broker.log.log import Log
from odradek.broker.replication.machine.divergence import Divergence, divergence, truncation_offset
from odradek.broker.replication.reading.delayed_fetch import DelayedFetch, FetchIsolation, check_leader_epoch
from odradek.metadata.image import PartitionImage
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition
from odradek.model.probes import probe
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.messages.fetch import FetchedPartition

if TYPE_CHECKING:
    from odradek.broker.log.write_scheduler import WriteScheduler

_log = logging.getLogger("odradek.broker")


class PartitionFetchState(NamedTuple):
    """The position of a follower in a Fetch request. `last_epoch` is the log's latest leader epoch."""

    topic_id: UUID
    offset: int
    last_epoch: int
    log_start_offset: int
    leader_epoch: int


class Follower:
    """A partition that this broker follows. `leader` is -1 while there is none."""

    __slots__ = (
        "_high_watermark",
        "_log_start_offset",
        "_logs",
        "_on_log_failed",
        "_readers",
        "_unwritten",
        "_write_scheduler",
        "is_over",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        image: PartitionImage,
        logs: LogManager,
        write_scheduler: "WriteScheduler",
        on_log_failed: "Callable[[Follower, StorageError], None]",
    ) -> None:
        self._on_log_failed = on_log_failed
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self.is_over = False
        self._logs = logs
        self._write_scheduler = write_scheduler
        self._high_watermark = log.high_watermark
        self._log_start_offset = log.log_start_offset
        """The leader's log start offset, from its last response."""
        self._unwritten: asyncio.Future[KafkaError | None] | None = None
        self._readers: dict[DelayedFetch, FetchIsolation] = {}

    @property
    def position(self) -> PartitionFetchState:
        log = self.log
        return PartitionFetchState(
            self.topic_id, log.written_offset, log.epochs.latest, log.log_start_offset, self.leader_epoch
        )

    @property
    def lag(self) -> int:
        """The number of offsets by which this log is behind the leader's last known high watermark."""
        return max(self._high_watermark - self.log.written_offset, 0)

    def update(self, image: PartitionImage) -> None:
        """Apply the controller's new state of the partition, which this broker still follows."""
        is_fenced = image.leader_epoch != self.leader_epoch
        self.leader, self.leader_epoch, self.isr = image.leader, image.leader_epoch, image.isr
        if is_fenced:
            self._interrupt_readers()

    def is_current_position(self, fetch_state: PartitionFetchState) -> bool:
        """Return whether a response to `fetch_state` continues the log: only `log_start_offset` may have changed."""
        return self.position == fetch_state._replace(log_start_offset=self.log.log_start_offset)

    def update_high_watermark(self, fetch_state: PartitionFetchState, answer: FetchedPartition) -> None:
        """Apply the offsets of a response whose records come too late, as a session does not send offsets twice."""
        if (fetch_state.topic_id, fetch_state.leader_epoch) == (self.topic_id, self.leader_epoch):
            self._high_watermark = max(self._high_watermark, answer.high_watermark)
            self._log_start_offset = max(self._log_start_offset, answer.log_start_offset)
            self._update_from_leader()

    def append_fetched(self, answer: FetchedPartition, now_ms: int) -> "asyncio.Future[KafkaError | None] | None":
        """Append a response's records, which continue the log; return None if there are none, else a future.

        The future's result is None when the records are written, else the error. Raises `KafkaError` for invalid
        records, or if the disk fails.
        """
        self._high_watermark, self._log_start_offset = answer.high_watermark, answer.log_start_offset
        if answer.records:
            self._begin_with(memoryview(answer.records), now_ms)
            if self.log.append_as_follower(answer.records, now_ms=now_ms):
                self._unwritten = asyncio.get_running_loop().create_future()
                self._write_scheduler.mark(self)
        self._update_from_leader()
        return self._unwritten

    def _begin_with(self, records: memoryview, now_ms: int) -> None:
        """If the log is empty, start it at the first batch, which may begin before the leader's log start offset."""
        log = self.log
        first = read_header(records).base_offset
        if not log.segments.size and 0 <= first < log.log_end_offset:
            probe("replication: an empty follower starts before its log start offset")
            self._logs.truncate_fully_and_start_at(self.topic_partition, first, now_ms)

    def log_failed(self, error: StorageError) -> None:
        """Stop following: the log cannot be written any more."""
        self._on_log_failed(self, error)

    def refused(self, error: KafkaError) -> None:
        """Record an append that failed, perhaps before the write scheduler got it."""
        self._write_scheduler.refused(self.log, error)

    def written(self, size: int) -> None:
        """Advance the high watermark and the log start offset; complete the append when all of it is written."""
        del size
        if self.is_over:
            return
        self._update_from_leader()
        if self._unwritten is not None and self.log.written_offset == self.log.log_end_offset:
            unwritten, self._unwritten = self._unwritten, None
            if not unwritten.done():
                unwritten.set_result(None)

    def failed(self, error: KafkaError) -> None:
        """Complete the current append with `error`."""
        unwritten, self._unwritten = self._unwritten, None
        if unwritten is not None and not unwritten.done():
            unwritten.set_result(error)

    def _update_from_leader(self) -> None:
        """Advance the high watermark and the log start offset to the leader's, as far as this log has the records."""
        log = self.log
        committed, before = min(self._high_watermark, log.written_offset), log.producers.high_watermark
        if committed > before:
            stable_before = self.last_stable_offset
            log.producers.committed(committed)
            if self._readers:
                self._notify_readers(before, stable_before)
        start = min(self._log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.advance_log_start_offset(start)
            checkpoints = self._logs.checkpoints
            if not checkpoints.is_due:  # one write for all partitions of a response
                checkpoints.is_due = True
                asyncio.get_running_loop().call_soon(checkpoints.write_due)

    async def settle(self) -> None:
        """Return when all earlier appends, also from when this broker led, are written or have failed.

        A changed log start offset is written, too, before the next fetch sends it to the leader.
        """
        self._logs.checkpoints.write_due()
        await self._write_scheduler.settle(self.log)

    def truncate(self, found: Divergence, now_ms: int) -> None:
        """Truncate the log to the offset at which it diverges from the leader's."""
        log = self.log
        probe("replication: a follower truncates by leader epoch")
        self.truncate_to(truncation_offset(found, self._end_offset_of, log_end_offset=log.log_end_offset), now_ms)

    def _end_offset_of(self, epoch: int) -> tuple[int, int]:
        return self.log.epochs.end_offset(epoch, self.log.log_end_offset)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        log = self.log
        if offset < log.high_watermark:
            probe("replication: a follower truncates below its high watermark")
            _log.warning(
                "Truncating %s to offset %d, below its high watermark %d",
                self.topic_partition,
                offset,
                log.high_watermark,
            )
        elif offset < log.log_end_offset:
            _log.info("Truncating %s to offset %d; it ended at %d", self.topic_partition, offset, log.log_end_offset)
        if offset < log.first_base_offset:
            self._logs.truncate_fully_and_start_at(self.topic_partition, offset, now_ms)
        else:
            self._logs.truncate_to(self.topic_partition, offset)
        self._high_watermark = min(self._high_watermark, offset)

    def restart(self, offset: int, now_ms: int) -> None:
        """Delete all records, and start the log at `offset`, the leader's log start offset."""
        probe("replication: a follower restarts at the leader's log start offset")
        _log.warning(
            "Truncating %s fully and starting at offset %d; it ended at %d",
            self.topic_partition,
            offset,
            self.log.log_end_offset,
        )
        self._logs.truncate_fully_and_start_at(self.topic_partition, offset, now_ms)

    def stop(self) -> None:
        """Stop following, and complete the waiting fetches. Appended records are still written."""
        self.is_over = True
        self._interrupt_readers()
        self.failed(KafkaError(ErrorCode.not_leader_or_follower))

    # Consumers

    @property
    def high_watermark(self) -> int:
        """The end offset of the records that this broker knows to be committed."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first committed offset that an open transaction may abort, else the high watermark."""
        unstable = self.log.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client's epoch is older or newer (KIP-320)."""
        check_leader_epoch(current_leader_epoch, self.leader_epoch)

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
        """Return where a reader's log diverges, or None. Raises `KafkaError` if `last_fetched_epoch` is too new."""
        return divergence(self._end_offset_of, fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch)

    def read_error(self, error: DamagedSegmentError) -> KafkaError:
        """Return KAFKA_STORAGE_ERROR for a read of a damaged segment, after which a consumer reads the leader."""
        return KafkaError(ErrorCode.kafka_storage_error, str(error))

    def add_delayed_fetch(self, fetch: DelayedFetch, isolation: FetchIsolation) -> None:
        """Notify `fetch` of all new records for consumers of this isolation."""
        self._readers[fetch] = isolation

    def remove_delayed_fetch(self, fetch: DelayedFetch) -> None:
        self._readers.pop(fetch, None)

    def _notify_readers(self, before: int, stable_before: int) -> None:
        """Notify the fetches that can read more than the old high watermark or last stable offset allowed."""
        log = self.log
        for reader, isolation in tuple(self._readers.items()):
            is_stable = isolation is FetchIsolation.TXN_COMMITTED
            start = stable_before if is_stable else before
            end = self.last_stable_offset if is_stable else self.high_watermark
            if end > start:
                try:
                    reader.advanced(max(log.size_between(start, end), 1))
                except KafkaError:
                    reader.interrupted()  # it reads, and returns the error

    def _interrupt_readers(self) -> None:
        for reader in tuple(self._readers):
            reader.interrupted()
