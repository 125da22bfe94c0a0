"""One partition that this broker leads: its log, its followers, and the requests that wait for it.

```
append ──► log (validated, offsets assigned, in no file yet) ──► written ──► committed (below the high watermark)
            acks=1 is answered, followers' fetches complete, here ┘            └ acks=all and consumers' fetches here
```
Also with acks=1, records are acknowledged only when they are in the file, so that they survive the process.
`LeaderReplication` decides what is committed, by the followers' fetches; with one replica, written is committed.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.broker.counters import TopicTraffic
from odradek.broker.log.errors import DamagedSegmentError, LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.validation import AppendInfo
from odradek.broker.replication.machine.divergence import Divergence, divergence
from odradek.broker.replication.machine.leader import IsrChange, LeaderReplication
from odradek.broker.replication.reading.delayed_fetch import DelayedFetch, FetchIsolation, check_leader_epoch
from odradek.broker.replication.refused_appends import is_consequence_of_election
from odradek.metadata.image import PartitionImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.probes import probe
from odradek.protocol.batches.control_records import EndTransactionMarker

if TYPE_CHECKING:
    from odradek.broker.log.write_scheduler import WriteScheduler
    from odradek.broker.replication.alter_partition_manager import AlterPartitionManager

_log = logging.getLogger("odradek.broker")
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
PATIENCE_MS: Final = 500
"""The time after a refusal by the controller in which the follower is not proposed for the ISR again."""
_WAITER_FAILED: Final = "Failed to complete a request that waits for an append"
Waiter = Callable[[KafkaError | None], None]


class Partition:
    """One partition that this broker leads, through successive leader epochs.

    Consumers read up to `high_watermark`, with read_committed up to `last_stable_offset`. `traffic` has the counters of
    the topic. `before` is the replication state when the fence closed, which is resumed in the same leader epoch.
    """

    __slots__ = (
        "_alter_partition_manager",
        "_committed",
        "_elected_ms",
        "_followers",
        "_is_over",
        "_readers",
        "_resigned",
        "_stable_readers",
        "_uncommitted",
        "_write_scheduler",
        "_written",
        "leader_epoch",
        "log",
        "replication",
        "topic_id",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        image: PartitionImage,
        write_scheduler: "WriteScheduler",
        alter_partition_manager: "AlterPartitionManager",
        traffic: TopicTraffic | None = None,
        before: LeaderReplication | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = image.leader_epoch
        self.traffic = traffic or TopicTraffic()
        self._write_scheduler = write_scheduler
        self._alter_partition_manager = alter_partition_manager
        self._written: deque[tuple[int, Waiter]] = deque()
        self._committed: deque[tuple[int, Waiter]] = deque()
        self._uncommitted: deque[tuple[int, int]] = deque()
        """`(end offset, bytes)` of writes that are not committed, in order."""
        self._readers: dict[DelayedFetch, None] = {}
        self._stable_readers: dict[DelayedFetch, None] = {}
        self._followers: dict[DelayedFetch, None] = {}
        self._resigned: KafkaError | None = None
        self._is_over = False
        self.replication = self._begin(image, before)
        if log.written_offset < log.log_end_offset:
            write_scheduler.mark(self)  # records appended as a follower: notify this object when they are written

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller wrote last."""
        return self.replication.isr

    @property
    def has_followers(self) -> bool:
        """Whether the partition has other replicas."""
        return bool(self.replication.remotes)

    @property
    def min_insync_replicas(self) -> int:
        """The in-sync replicas that acks=all needs: `min.insync.replicas`, at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.replication.remotes) + 1)

    @property
    def high_watermark(self) -> int:
        """The end offset of the committed records."""
        return self.replication.high_watermark

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the replicas that may lead now or next."""
        return self.replication.low_watermark(self.log.log_start_offset, live=self._alter_partition_manager.live)

    @property
    def is_end_known(self) -> bool:
        """Whether the high watermark has reached the start offset of this leader epoch (KIP-207)."""
        return self.replication.high_watermark >= self.replication.start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first committed offset that an open transaction may abort, else the high watermark."""
        return self._stable_offset(self.high_watermark)

    def _stable_offset(self, high_watermark: int) -> int:
        unstable = self.log.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def last_stable_offset_lag(self) -> int:
        """The number of committed offsets that read_committed consumers cannot read yet."""
        return self.high_watermark - self.last_stable_offset

    # Appending

    def append_records(
        self,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        from_client: bool = True,
        transactional: bool = False,
        needs_verification: bool = False,
        is_checked: bool = False,
    ) -> AppendInfo:
        """Validate and append `records`, whose memory must not change until they are written, in this turn or later.

        `from_client=False` is for the broker's own records; a client's may belong to a transaction only if
        `transactional` is true. With `needs_verification`, a transaction's first batch must be verified. Raises
        `KafkaError`: the reason of `refuse_appends`, NOT_ENOUGH_REPLICAS for acks=all, the log's error, or
        NOT_LEADER_OR_FOLLOWER for a sequence gap after an election. A duplicate batch is accepted even without enough
        replicas, because after an error its producer could send it again as a new one.
        """
        try:
            self._check_may_append(acks)
        except KafkaError as error:
            duplicate = self.log.find_duplicate(records) if self._resigned is None else None
            if duplicate is None:
                self.log.writer.refused.note_batch(records, error, now_ms)
                raise
            return duplicate
        epoch = self.leader_epoch
        try:
            info = self.log.append_as_leader(
                records,
                leader_epoch=epoch,
                now_ms=now_ms,
                from_client=from_client,
                transactional=transactional,
                needs_verification=needs_verification,
                is_checked=is_checked,
            )
        except KafkaError as error:
            self._write_scheduler.refused(self.log, error)
            if is_consequence_of_election(error, epoch, self._elected_ms, self._alter_partition_manager.monotonic_ms()):
                probe("replication: an election causes a sequence gap")
                raise KafkaError(ErrorCode.not_leader_or_follower, str(error)) from error
            raise
        if not info.duplicate:
            self._write_scheduler.mark(self)
        self.traffic.produces += 1
        return info

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction, with acks=all. Raises `KafkaError` if it is refused."""
        self._check_may_append(ACKS_ALL)
        info = self.log.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        if not info.duplicate:
            self._write_scheduler.mark(self)
        return info

    def append_error(self) -> KafkaError | None:
        try:
            self._check_may_append(ACKS_ALL)
        except KafkaError as error:
            return error
        return None if self.log.failure is None else LogStorageError(self.log.failure)

    def _check_may_append(self, acks: int) -> None:
        if self._resigned is not None:
            raise self._resigned
        if acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            probe("replication: an append is refused for too few in-sync replicas")
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas and needs {self.min_insync_replicas}",
            )

    def when_acknowledged(self, info: AppendInfo, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` once, later: with None when the append is as safe as `acks` requires, or with an error."""
        if info.duplicate:
            self.when_reached(info.last_offset + 1, acks=acks, waiter=waiter)
        else:
            (self._committed if acks == ACKS_ALL else self._written).append((info.last_offset + 1, waiter))

    def when_reached(self, offset: int, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` once, later: with None when all before `offset` is as safe as `acks` requires, or an error."""
        waiters = self._committed if acks == ACKS_ALL else self._written
        place = len(waiters)
        while place and waiters[place - 1][0] > offset:
            place -= 1
        waiters.insert(place, (offset, waiter))
        self._write_scheduler.mark(self)  # the offset may be reached already, and the next write could be far off

    # Leading

    def _begin(self, image: PartitionImage, before: LeaderReplication | None = None) -> LeaderReplication:
        """Start to lead in a new epoch, or again in the epoch of `before`."""
        log, manager = self.log, self._alter_partition_manager
        self._elected_ms = monotonic_ms = manager.monotonic_ms()
        self.leader_epoch = image.leader_epoch
        if len(image.replicas) > 1:
            log.begin_epoch(image.leader_epoch)
        self.replication = LeaderReplication(
            broker_id=manager.broker_id,
            replicas=image.replicas,
            isr=image.isr,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.state_version,
            start_offset=log.log_end_offset,
            high_watermark=max(log.high_watermark, log.log_start_offset),
            now_ms=monotonic_ms,
        )
        self.replication.log_end_offset = log.written_offset
        if before is not None:
            self._submit_isr_change(self.replication.resume(before))
        self._advance()
        log.producers.committed(self.high_watermark)
        return self.replication

    def update(self, image: PartitionImage) -> None:
        """Apply the controller's new state of the partition, which this broker still leads."""
        if image.leader_epoch != self.leader_epoch:
            self._begin(image)
            for reader in tuple(self._followers):
                reader.interrupted()  # they wait in the former epoch
            self._isr_changed()
            return
        monotonic_ms = self._alter_partition_manager.monotonic_ms()
        self.replication.assigned(image.replicas, now_ms=monotonic_ms)
        self._advance()
        if self.replication.updated(
            replicas=image.replicas, isr=image.isr, partition_epoch=image.state_version, now_ms=monotonic_ms
        ):
            self._isr_changed()

    def fetched_by(self, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int = -1) -> None:
        """Record that a follower has all records before `offset`; propose it for the ISR if it has caught up."""
        replication, monotonic_ms = self.replication, self._alter_partition_manager.monotonic_ms()
        replication.fetched(
            replica, offset, log_start_offset=log_start_offset, broker_epoch=broker_epoch, now_ms=monotonic_ms
        )
        self._advance()
        remote = replication.remotes.get(replica)
        if remote is not None and replica not in replication.isr and monotonic_ms >= remote.refused_until_ms:
            self._submit_isr_change(replication.propose_join(replica))

    def brokers_changed(self) -> None:
        """Advance the high watermark if only a dead follower outside the ISR held it back."""
        if self.replication.remotes:
            self._advance()

    def check_lag(self) -> None:
        """Propose the removal of lagging followers from the ISR."""
        manager = self._alter_partition_manager
        if self.replication.remotes:
            self._advance()
            self._submit_isr_change(
                self.replication.propose_leave(now_ms=manager.monotonic_ms(), max_lag_ms=manager.max_lag_ms)
            )

    def _submit_isr_change(self, change: IsrChange | None) -> None:
        if change is not None:
            self._alter_partition_manager.submit(self, change)

    def is_pending_isr(self, change: IsrChange) -> bool:
        """Return whether this broker still leads the partition, and the change is pending."""
        return not self._is_over and self.replication.pending is change

    def handle_isr_change(self, change: IsrChange, *, isr: Sequence[int], partition_epoch: int) -> None:
        """Apply the ISR that the controller has written, while this broker leads."""
        if not self._is_over and self.replication.accepted(change, isr=isr, partition_epoch=partition_epoch):
            self._isr_changed()

    def handle_isr_rejection(self, change: IsrChange, *, patience_ms: int = PATIENCE_MS) -> None:
        """Drop a change that the controller refused; its follower is proposed again after `patience_ms`."""
        if not self.is_pending_isr(change):
            return
        self.replication.refused(change, until_ms=self._alter_partition_manager.monotonic_ms() + patience_ms)
        self._advance()

    def _isr_changed(self) -> None:
        if len(self.isr) < self.min_insync_replicas:
            probe("replication: the ISR is too small after an append")
            error = KafkaError(
                ErrorCode.not_enough_replicas_after_append,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas left, and needs "
                f"{self.min_insync_replicas}",
            )
            _fail(self._committed, error)
        self._advance()

    def _advance(self) -> None:
        """Advance the high watermark to the offset that the ISR has reached, and complete what waits for it."""
        replication, manager = self.replication, self._alter_partition_manager
        before = replication.high_watermark
        if before < replication.log_end_offset and replication.advance(
            now_ms=manager.monotonic_ms(),
            max_lag_ms=manager.max_lag_ms,
            min_isr=self.min_insync_replicas,
            live=manager.live,
        ):
            self._commit(before)

    # Calls of the write scheduler

    def written(self, size: int) -> None:
        """Complete the appends and fetches that wait for the log's new `written_offset`; `size` bytes were written."""
        if self._is_over:
            return
        replication, end = self.replication, self.log.written_offset
        _call_up_to(self._written, end)
        if end > replication.log_end_offset:
            self.traffic.bytes_in += size
            self.traffic.messages_in += end - replication.log_end_offset
            self._uncommitted.append((end, size))
            before = replication.high_watermark
            if not replication.remotes:
                if replication.appended_alone(end):
                    self._commit(before)
            else:
                replication.log_end_offset = end
                self._advance()
                for reader in tuple(self._followers):
                    reader.advanced(size)
        _call_up_to(self._committed, replication.high_watermark)

    def _commit(self, before: int) -> None:
        """Complete the appends and fetches that wait for the high watermark, which was `before`."""
        offset = self.replication.high_watermark
        uncommitted, size = self._uncommitted, 0
        while uncommitted and uncommitted[0][0] <= offset:
            size += uncommitted.popleft()[1]
        stable_before = self._stable_offset(before) if self._stable_readers else offset
        self.log.producers.committed(offset)
        for reader in tuple(self._readers):
            reader.advanced(max(size, 1))  # a part of a write may be committed
        self._stabilize(before, stable_before, size)
        _call_up_to(self._committed, offset)

    def _stabilize(self, before: int, stable_before: int, size: int) -> None:
        """Notify the waiting read_committed fetches if the last stable offset has advanced from `stable_before`."""
        offset = self.high_watermark
        stable = self.last_stable_offset if self._stable_readers else offset
        if not self._stable_readers or stable == stable_before:
            return
        try:
            is_usual = (stable_before, stable) == (before, offset)
            stable_size = max(size, 1) if is_usual else self.log.size_between(stable_before, stable)
        except KafkaError:
            for reader in tuple(self._stable_readers):
                reader.interrupted()  # it reads again
        else:
            for reader in tuple(self._stable_readers):
                reader.advanced(stable_size)

    def refuse_appends(self, reason: KafkaError) -> None:
        """Refuse further appends; accepted ones are still written and acknowledged."""
        self._resigned = reason

    def resign(self, reason: KafkaError) -> None:
        """Stop leading: refuse appends, fail the waiting ones, and complete the waiting fetches."""
        self.refuse_appends(reason)
        self._is_over = True
        for waiters in (self._written, self._committed):
            _fail(waiters, reason)
        self._interrupt()

    def failed(self, error: KafkaError) -> None:
        """Fail the appends that were not written."""
        written_offset = self.log.written_offset
        for waiters in (self._written, self._committed):
            _fail(waiters, error, beyond=written_offset)
        self._interrupt()

    def _interrupt(self) -> None:
        """Complete all waiting fetches."""
        for reader in (*self._readers, *self._stable_readers, *self._followers):
            reader.interrupted()

    # Reading

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client's epoch is older or newer (KIP-320)."""
        check_leader_epoch(current_leader_epoch, self.leader_epoch)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Raise `KafkaError` if `replica` is not a follower of this partition.

        UNKNOWN_LEADER_EPOCH if the request has an epoch, as its sender's metadata may be newer than this broker's, else
        NOT_LEADER_OR_FOLLOWER.
        """
        if replica not in self.replication.remotes:
            code = ErrorCode.unknown_leader_epoch if current_leader_epoch >= 0 else ErrorCode.not_leader_or_follower
            raise KafkaError(code, f"broker {replica} has no replica of {self.topic_partition}")

    def read_error(self, error: DamagedSegmentError) -> KafkaError:
        """Return KAFKA_STORAGE_ERROR for a read of a damaged segment if another replica is in sync, else `error`.

        Clients then refresh their metadata, while they give up after CORRUPT_MESSAGE.
        """
        if self.log.suspected.may_be_damaged and len(self.isr) > 1:
            return KafkaError(ErrorCode.kafka_storage_error, str(error))
        return error

    @property
    def has_only_damaged_copy(self) -> bool:
        return self.log.suspected.damage is not None and len(self.isr) == 1

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
        """Return where a reader's log diverges, or None. Raises `KafkaError` if `last_fetched_epoch` is too new."""
        log = self.log
        return divergence(
            lambda epoch: log.epochs.end_offset(epoch, log.written_offset),
            fetch_offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
        )

    def add_delayed_fetch(self, fetch: DelayedFetch, isolation: FetchIsolation) -> None:
        """Notify `fetch` of all new records for readers of this isolation."""
        fetches = (self._followers, self._readers, self._stable_readers)[isolation]
        fetches[fetch] = None

    def remove_delayed_fetch(self, fetch: DelayedFetch) -> None:
        self._readers.pop(fetch, None)
        self._stable_readers.pop(fetch, None)
        self._followers.pop(fetch, None)


def _fail(waiters: deque[tuple[int, Waiter]], error: KafkaError, *, beyond: int = -1) -> None:
    """Call the waiters for offsets after `beyond` with `error`; keep the others."""
    failed = [waiter for offset, waiter in waiters if offset > beyond]
    kept = [each for each in waiters if each[0] <= beyond]
    waiters.clear()
    waiters.extend(kept)
    for waiter in failed:
        try:
            waiter(error)
        except Exception:
            _log.exception(_WAITER_FAILED)


def _call_up_to(waiters: deque[tuple[int, Waiter]], offset: int) -> None:
    while waiters and waiters[0][0] <= offset:
        waiter = waiters.popleft()[1]
        try:
            waiter(None)
        except Exception:
            _log.exception(_WAITER_FAILED)
