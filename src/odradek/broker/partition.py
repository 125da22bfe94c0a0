"""One partition that this broker leads: its log, and those who wait for it.

```
append ──► log (validated, offsets assigned, in no file yet) ──► written ──► committed (below the high watermark)
                                              acks=1 is answered here ┘            └ acks=all here, and readers wake
```
An append is answered when it is in the file at least: what was acknowledged survives the death of the process. With
one replica, written is committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.log.log import AppendInfo, Log
from odradek.metrics.counters import TopicTraffic
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.control_records import EndTransactionMarker

if TYPE_CHECKING:
    from odradek.broker.writer import Writer

ACKS_ALL: Final = -1
Waiter = Callable[[KafkaError | None], None]


class Reader(Protocol):
    """Who waits for records of a partition."""

    def advanced(self, size: int) -> None:
        """`size` more bytes may be read."""

    def interrupted(self) -> None:
        """The partition is no longer led by this broker."""


class Partition:
    """See the module. `high_watermark` is the end of what is committed, which is all that readers get.

    Those that read nothing but committed transactions get what is before `last_stable_offset`.
    `traffic` counts what goes in and out of all partitions of the topic.
    """

    __slots__ = (
        "_committed",
        "_readers",
        "_resigned",
        "_stable_readers",
        "_writer",
        "_written",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log",
        "min_insync_replicas",
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
        leader_epoch: int,
        isr: tuple[int, ...],
        min_insync_replicas: int,
        writer: "Writer",
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.min_insync_replicas = min_insync_replicas
        self.high_watermark = log.written_offset
        self.traffic = traffic or TopicTraffic()
        self._writer = writer
        self._written: deque[tuple[int, Waiter]] = deque()
        self._committed: deque[tuple[int, Waiter]] = deque()
        self._readers: dict[Reader, None] = {}
        self._stable_readers: dict[Reader, None] = {}
        self._resigned: KafkaError | None = None
        log.producers.committed(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Where read-committed readers must stop: of what is behind it, some may yet be aborted."""
        unstable = self.log.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

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
        against them.
        """
        self._check_may_append(acks)
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
        (self._committed if acks == ACKS_ALL else self._written).append((info.last_offset + 1, waiter))
        if info.duplicate:
            # What it repeats may be written long ago, and then nothing else would look at the queues.
            self._writer.mark(self)

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

    # What the writer says

    def written(self, size: int) -> None:
        """The log's `written_offset` has moved past `size` more bytes."""
        written_offset = self.log.written_offset
        _call_up_to(self._written, written_offset)
        if written_offset > self.high_watermark:
            self.traffic.bytes_in += size
            self.traffic.messages_in += written_offset - self.high_watermark
            self._commit(written_offset, size)
        _call_up_to(self._committed, self.high_watermark)

    def _commit(self, offset: int, size: int) -> None:
        """Let the high watermark be `offset`, `size` bytes further."""
        before, stable_before = self.high_watermark, self.last_stable_offset if self._stable_readers else offset
        self.high_watermark = offset
        self.log.producers.committed(offset)
        for reader in tuple(self._readers):
            reader.advanced(size)
        stable = self.last_stable_offset if self._stable_readers else offset
        if stable == stable_before:
            return
        try:
            is_usual = (stable_before, stable) == (before, offset)
            stable_size = size if is_usual else self.log.size_between(stable_before, stable)
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
        self.failed(reason)

    def failed(self, error: KafkaError) -> None:
        """What was appended is lost: tell those who wait for it."""
        for waiters in (self._written, self._committed):
            while waiters:
                waiters.popleft()[1](error)
        for reader in (*self._readers, *self._stable_readers):
            reader.interrupted()

    # Reading

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client knows another leader than this (KIP-320)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.fenced_leader_epoch)
            raise KafkaError(ErrorCode.unknown_leader_epoch)

    def add_reader(self, reader: Reader, *, read_committed: bool = False) -> None:
        """Tell `reader` of every advance from now on: of the high watermark, or of the last stable offset."""
        (self._stable_readers if read_committed else self._readers)[reader] = None

    def remove_reader(self, reader: Reader) -> None:
        """Tell it no more."""
        self._readers.pop(reader, None)
        self._stable_readers.pop(reader, None)


def _call_up_to(waiters: deque[tuple[int, Waiter]], offset: int) -> None:
    """Appends are in order of offsets, but a duplicate's may come behind a later one's: it waits that little longer."""
    while waiters and waiters[0][0] <= offset:
        waiters.popleft()[1](None)
