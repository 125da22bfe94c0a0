"""One partition that this broker leads: its log, its followers, and those who wait for it.

```
append ──► log (validated, offsets assigned, in no file yet) ──► written ──► committed (below the high watermark)
                 acks=1 is answered, and followers wake, here ┘            └ acks=all here, and readers wake
```
An append is answered when it is in the file at least: what was acknowledged survives the death of the process. What is
committed `LeaderReplication` says, by what followers fetch; with one replica, written is committed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.broker.replication.delayed_fetch import DelayedFetch, FetchIsolation
from odradek.log.errors import DamagedSegmentError
from odradek.log.log import AppendInfo, Log
from odradek.metadata.image import PartitionImage
from odradek.metrics.counters import TopicTraffic
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.control_records import EndTransactionMarker
from odradek.replication import Divergence, IsrChange, LeaderReplication, divergence

if TYPE_CHECKING:
    from odradek.broker.replication.alter_partition_manager import AlterPartitionManager
    from odradek.broker.replication.writer import Writer

_log = logging.getLogger("odradek.broker")
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
_PATIENCE_MS: Final = 500
"""Who was refused as a member of the in-sync set does not ask again at once."""
Waiter = Callable[[KafkaError | None], None]


class Partition:
    """See the module; in one leader epoch after the other, for as long as this broker leads.

    Consumers get what is before `high_watermark`; those that read nothing but committed transactions, what is before
    `last_stable_offset`. `traffic` counts what goes in and out of all partitions of the topic. `before` is what was
    known of the followers when this broker stopped leading the partition, maybe in this very epoch.
    """

    __slots__ = (
        "_alter_partition_manager",
        "_committed",
        "_followers",
        "_is_over",
        "_patient_until_ms",
        "_readers",
        "_resigned",
        "_stable_readers",
        "_uncommitted",
        "_writer",
        "_written",
        "leader_epoch",
        "log",
        "min_insync_replicas",
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
        min_insync_replicas: int,
        writer: "Writer",
        alter_partition_manager: "AlterPartitionManager",
        traffic: TopicTraffic | None = None,
        before: LeaderReplication | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = image.leader_epoch
        self.min_insync_replicas = min_insync_replicas
        self.traffic = traffic or TopicTraffic()
        self._writer = writer
        self._alter_partition_manager = alter_partition_manager
        self._written: deque[tuple[int, Waiter]] = deque()
        self._committed: deque[tuple[int, Waiter]] = deque()
        self._uncommitted: deque[tuple[int, int]] = deque()
        """`(end offset, bytes)` of what was written and is not committed, in order."""
        self._readers: dict[DelayedFetch, None] = {}
        self._stable_readers: dict[DelayedFetch, None] = {}
        self._followers: dict[DelayedFetch, None] = {}
        self._resigned: KafkaError | None = None
        self._is_over = False
        self._patient_until_ms = 0
        self.replication = self._begin(image, before)
        if log.written_offset < log.log_end_offset:
            writer.mark(self)  # a follower has appended it, and nobody would be told

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync set, as the controller last wrote it."""
        return self.replication.isr

    @property
    def has_followers(self) -> bool:
        """Whether it may take others to commit what is written."""
        return bool(self.replication.remotes)

    @property
    def high_watermark(self) -> int:
        """The end of what is committed."""
        return self.replication.high_watermark

    @property
    def is_end_known(self) -> bool:
        """Whether the high watermark is where this leader's epoch begins: the last leader may have told as much."""
        return self.replication.high_watermark >= self.replication.start_offset

    @property
    def last_stable_offset(self) -> int:
        """Where read-committed readers must stop: of what is behind it, some may yet be aborted."""
        return self._stable_offset(self.high_watermark)

    def _stable_offset(self, high_watermark: int) -> int:
        unstable = self.log.reader.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def last_stable_offset_lag(self) -> int:
        """How many committed offsets read-committed readers must wait for."""
        return self.high_watermark - self.last_stable_offset

    # Appending

    def append_records(
        self, records: memoryview, *, acks: int, now_ms: int, from_client: bool = True, transactional: bool = False
    ) -> AppendInfo:
        """Validate and take `records`, which must not change until they are written at the end of this turn or later.

        `from_client=False` is for what the broker itself writes; what a client sends is of a transaction only if
        `transactional` says that it may be. Raises `KafkaError`: NOT_ENOUGH_REPLICAS for acks=all, or what the log has
        against them. A batch that the log has already is not refused for lack of replicas, as Kafka does: its producer
        would take it for lost, and could send it again as a new one.
        """
        try:
            self._check_may_append(acks)
        except KafkaError as error:
            duplicate = self.log.find_duplicate(records) if self._resigned is None else None
            if duplicate is None:
                self.log.refused.note_batch(records, error, now_ms)
                raise
            return duplicate
        info = self.log.append(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            from_client=from_client,
            transactional=transactional,
        )
        if not info.duplicate:
            self._writer.mark(self)
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
        """End a producer's transaction here, for acks=all. Raises `KafkaError` as `append_records`."""
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
            self._writer.mark(self)
        return info

    def _check_may_append(self, acks: int) -> None:
        if self._resigned is not None:
            raise self._resigned
        if acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas and needs {self.min_insync_replicas}",
            )

    def when_acknowledged(self, info: AppendInfo, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` once, when `info` is as safe as `acks` asks for, or with what went wrong. Never at once."""
        if info.duplicate:
            self.when_reached(info.last_offset + 1, acks=acks, waiter=waiter)
        else:
            (self._committed if acks == ACKS_ALL else self._written).append((info.last_offset + 1, waiter))

    def when_reached(self, offset: int, *, acks: int, waiter: Waiter) -> None:
        """Call `waiter` once, when everything before `offset` is as safe as `acks` asks for. As `when_acknowledged`."""
        waiters = self._committed if acks == ACKS_ALL else self._written
        place = len(waiters)
        while place and waiters[place - 1][0] > offset:
            place -= 1
        waiters.insert(place, (offset, waiter))
        self._writer.mark(self)  # it may be reached already, and then nothing else would look at the queues

    def append(self, records: memoryview, *, acks: int = ACKS_ALL, now_ms: int) -> "asyncio.Future[AppendInfo]":
        """`append_records` and `when_acknowledged` in one, for those who are not in a hurry. Raises as the former."""
        future: asyncio.Future[AppendInfo] = asyncio.get_running_loop().create_future()
        info = self.append_records(records, acks=acks, now_ms=now_ms)

        def acknowledge(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(info)
            else:
                future.set_exception(error)

        self.when_acknowledged(info, acks=acks, waiter=acknowledge)
        return future

    # Leading

    def _begin(self, image: PartitionImage, before: LeaderReplication | None = None) -> LeaderReplication:
        """Lead in a new epoch, or again in that of `before`: followers are to be heard of anew."""
        log, sets = self.log, self._alter_partition_manager
        now_ms = sets.now_ms()
        self.leader_epoch = image.leader_epoch
        if len(image.replicas) > 1:
            log.begin_epoch(image.leader_epoch)
        self.replication = LeaderReplication(
            broker_id=sets.broker_id,
            replicas=image.replicas,
            isr=image.isr,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.state_version,
            start_offset=log.log_end_offset,
            high_watermark=max(log.high_watermark, log.log_start_offset),
            now_ms=now_ms,
        )
        self.replication.log_end_offset = log.written_offset
        if before is not None:
            self._submit_isr_change(self.replication.resume(before))
        self._advance()
        log.producers.committed(self.high_watermark)
        return self.replication

    def update(self, image: PartitionImage) -> None:
        """The controller says what the partition looks like; this broker leads it still."""
        if image.leader_epoch != self.leader_epoch:
            self._begin(image)
            for reader in tuple(self._followers):
                reader.interrupted()  # they know of the epoch before
            self._isr_changed()
            return
        now_ms = self._alter_partition_manager.now_ms()
        self.replication.assigned(image.replicas, now_ms=now_ms)
        self._advance()
        if self.replication.updated(
            replicas=image.replicas, isr=image.isr, partition_epoch=image.state_version, now_ms=now_ms
        ):
            self._isr_changed()

    def fetched_by(self, replica: int, offset: int, *, log_start_offset: int, broker_epoch: int = -1) -> None:
        """A follower has everything before `offset`, and asks for what comes then."""
        replication = self.replication
        replication.fetched(
            replica,
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            now_ms=self._alter_partition_manager.now_ms(),
        )
        self._advance()
        if replica not in replication.isr and self._alter_partition_manager.now_ms() >= self._patient_until_ms:
            self._submit_isr_change(replication.propose_join(replica))

    def brokers_changed(self) -> None:
        """A follower that is gone holds nothing up any more, if it is no member."""
        if self.replication.remotes:
            self._advance()

    def check_lag(self) -> None:
        """Have members of the in-sync set removed that lag."""
        sets = self._alter_partition_manager
        if self.replication.remotes:
            self._advance()
            self._submit_isr_change(self.replication.propose_leave(now_ms=sets.now_ms(), max_lag_ms=sets.max_lag_ms))

    def _submit_isr_change(self, change: IsrChange | None) -> None:
        if change is not None:
            self._alter_partition_manager.submit(self, change)

    def is_pending_isr(self, change: IsrChange) -> bool:
        """Whether it is still led, and the change wanted."""
        return not self._is_over and self.replication.pending is change

    def handle_isr_change(self, change: IsrChange, *, isr: Sequence[int], partition_epoch: int) -> None:
        """The controller has written a change, or another one."""
        if self.replication.accepted(change, isr=isr, partition_epoch=partition_epoch):
            self._isr_changed()

    def handle_isr_rejection(self, change: IsrChange) -> None:
        """The controller did not write it, and never will."""
        self.replication.refused(change)
        self._patient_until_ms = self._alter_partition_manager.now_ms() + _PATIENCE_MS
        self._advance()

    def _isr_changed(self) -> None:
        if len(self.isr) < self.min_insync_replicas:
            error = KafkaError(
                ErrorCode.not_enough_replicas_after_append,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas left, and needs "
                f"{self.min_insync_replicas}",
            )
            _fail(self._committed, error)
        self._advance()

    def _advance(self) -> None:
        """Let the high watermark follow the followers."""
        replication, sets = self.replication, self._alter_partition_manager
        before = replication.high_watermark
        if before < replication.log_end_offset and replication.advance(
            now_ms=sets.now_ms(), max_lag_ms=sets.max_lag_ms, min_isr=self.min_insync_replicas, live=sets.live
        ):
            self._commit(before)

    # What the writer says

    def written(self, size: int) -> None:
        """The log's `written_offset` has moved past `size` more bytes."""
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
        """The high watermark has moved on, from `before`."""
        offset = self.replication.high_watermark
        uncommitted, size = self._uncommitted, 0
        while uncommitted and uncommitted[0][0] <= offset:
            size += uncommitted.popleft()[1]
        stable_before = self._stable_offset(before) if self._stable_readers else offset
        self.log.producers.committed(offset)
        for reader in tuple(self._readers):
            reader.advanced(max(size, 1))  # part of a write may be committed
        self._stabilize(before, stable_before, size)
        _call_up_to(self._committed, offset)

    def _stabilize(self, before: int, stable_before: int, size: int) -> None:
        """Tell those who read committed transactions only, if there is more for them."""
        offset = self.high_watermark
        stable = self.last_stable_offset if self._stable_readers else offset
        if not self._stable_readers or stable == stable_before:
            return
        try:
            is_usual = (stable_before, stable) == (before, offset)
            stable_size = max(size, 1) if is_usual else self.log.reader.size_between(stable_before, stable)
        except KafkaError:
            for reader in tuple(self._stable_readers):
                reader.interrupted()  # to find out by itself
        else:
            for reader in tuple(self._stable_readers):
                reader.advanced(stable_size)

    def refuse_appends(self, reason: KafkaError) -> None:
        """Take nothing more; what was taken is still written and acknowledged."""
        self._resigned = reason

    def resign(self, reason: KafkaError) -> None:
        """Another broker leads it now, or none: take nothing more, and let nobody wait."""
        self.refuse_appends(reason)
        self._is_over = True
        for waiters in (self._written, self._committed):
            _fail(waiters, reason)
        self._interrupt()

    def failed(self, error: KafkaError) -> None:
        """What was appended and not written is lost: tell those who wait for it."""
        written_offset = self.log.written_offset
        for waiters in (self._written, self._committed):
            _fail(waiters, error, beyond=written_offset)
        self._interrupt()

    def _interrupt(self) -> None:
        """Let all readers find out by themselves."""
        for reader in (*self._readers, *self._stable_readers, *self._followers):
            reader.interrupted()

    # Reading

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client knows another leader than this (KIP-320)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.fenced_leader_epoch)
            raise KafkaError(ErrorCode.unknown_leader_epoch)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Raise `KafkaError` if `replica` has none of this partition: as it may know better, as to a later epoch."""
        if replica not in self.replication.remotes:
            code = ErrorCode.unknown_leader_epoch if current_leader_epoch >= 0 else ErrorCode.not_leader_or_follower
            raise KafkaError(code, f"broker {replica} has no replica of {self.topic_partition}")

    def read_error(self, error: DamagedSegmentError) -> KafkaError:
        """Return what a reader of a damaged place is told.

        Clients give up for CORRUPT_MESSAGE. KAFKA_STORAGE_ERROR lets them look for the leader anew, and there will be
        another one if there is one in sync.
        """
        if self.log.may_be_damaged and len(self.isr) > 1:
            return KafkaError(ErrorCode.kafka_storage_error, str(error))
        return error

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
        """Where the log of who fetches and this one part, if they do (see `replication.divergence`)."""
        log = self.log
        return divergence(
            lambda epoch: log.epochs.end_offset(epoch, log.written_offset),
            fetch_offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
        )

    def add_delayed_fetch(self, fetch: DelayedFetch, isolation: FetchIsolation) -> None:
        """Notify `fetch` whenever there is more to read for readers of this isolation."""
        fetches = (self._followers, self._readers, self._stable_readers)[isolation]
        fetches[fetch] = None

    def remove_delayed_fetch(self, fetch: DelayedFetch) -> None:
        """Stop notifying a fetch."""
        self._readers.pop(fetch, None)
        self._stable_readers.pop(fetch, None)
        self._followers.pop(fetch, None)


def _fail(waiters: deque[tuple[int, Waiter]], error: KafkaError, *, beyond: int = -1) -> None:
    """Tell those who wait for more than offset `beyond`."""
    failed = [waiter for offset, waiter in waiters if offset > beyond]
    kept = [each for each in waiters if each[0] <= beyond]
    waiters.clear()
    waiters.extend(kept)
    for waiter in failed:
        _call(waiter, error)


def _call_up_to(waiters: deque[tuple[int, Waiter]], offset: int) -> None:
    while waiters and waiters[0][0] <= offset:
        _call(waiters.popleft()[1], None)


def _call(waiter: Waiter, error: KafkaError | None) -> None:
    """Tell one who waits, whose own error is none of the others'."""
    try:
        waiter(error)
    except Exception:
        _log.exception("a client that waits for an append could not be answered")
