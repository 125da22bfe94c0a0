"""The idempotent producers of a log: expected sequence numbers, the last batches, and open transactions.

A batch must continue the sequence numbers of the producer's last batch; a duplicate of one of the last five gets the
offsets of its first append. The state is rebuilt from a snapshot and the batches after it.

| the batch's producer | and its sequence | result |
|---|---|---|
| is unknown, or has no epoch | any | appended: earlier records may be deleted |
| is unknown, transactions of version 2 | not 0 | OUT_OF_ORDER_SEQUENCE_NUMBER: each transaction begins with 0 |
| has an older epoch | any | INVALID_PRODUCER_EPOCH: a newer instance has replaced it |
| has a newer epoch | 0 | appended |
| has a newer epoch | another | OUT_OF_ORDER_SEQUENCE_NUMBER |
| has the same epoch | first and last of one of its last five batches | duplicate |
| has the same epoch | follows the last one (0 follows 2**31 - 1) | appended |
| has the same epoch | another | OUT_OF_ORDER_SEQUENCE_NUMBER, unless the expected one was refused (`refused_batches`) |

A transaction begins with a producer's first transactional batch and ends with its coordinator's marker; until then the
producer's non-transactional batches get INVALID_TXN_STATE.

Before that first batch, the leader verifies with the transaction's coordinator that the partition belongs to the
transaction (KIP-890): else nothing would end the transaction here. A marker that is appended meanwhile voids the
`Verification`, but not its error: the batch gets the coordinator's error, which may be retriable.

| the marker's producer epoch | and the transaction | result |
|---|---|---|
| is older than the producer's | | INVALID_PRODUCER_EPOCH |
| is the same, transactions of version 0 or 1 | | appended |
| is the same, version 2 (each marker has a new epoch, KIP-890) | is open | INVALID_PRODUCER_EPOCH: a late marker |
| is the same, version 2 | is not open | duplicate: a repeated request |
| is newer, or the producer is unknown | | appended |
| as appended above, but the coordinator epoch is below the last marker's | | TRANSACTION_COORDINATOR_FENCED |
"""

from collections import deque
from typing import Final

from msgspec import Struct

from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import probe
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.batches.record_batch import BatchHeader

REMEMBERED_BATCHES: Final = 5
"""The number of batches that a producer may have in flight."""
MOST_PRODUCERS: Final = 65_536
"""Limit beyond which the producers that were idle for longest are forgotten: each roll of a log writes all."""
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
EPOCH_PER_TRANSACTION: Final = 2
"""The first transaction version whose markers have a new producer epoch (KIP-890)."""
_SEQUENCES: Final = 2**31


class AppendedBatch(Struct, frozen=True, gc=False):
    """A producer's batch in the log; `timestamp` is its largest, in ms."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Verification(Struct, eq=False):
    """Whether a partition belongs to a producer's transaction; pending until the coordinator has responded."""

    epoch: int
    begun_ms: int
    bumps_epoch: bool = False
    """Whether the producer's transactions have version 2."""
    is_verified: bool = False
    is_void: bool = False
    """Whether a marker has been appended since it began."""
    error: KafkaError | None = None


class ProducerEntry(Struct, eq=False, gc=False):
    """One producer: its epoch and its last batches, the newest last.

    `transaction_start` is the first offset of the open transaction, `coordinator_epoch` that of the last marker,
    `last_append_ms` the time of the last append since the log was opened; -1 means none. Python's garbage collector
    does not go over the entries: a log may have very many.
    """

    epoch: int
    batches: tuple[AppendedBatch, ...] = ()
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = -1
    last_append_ms: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def due_sequence(self, epoch: int) -> int:
        """Return the first sequence number expected of the next batch with `epoch`."""
        return (self.last_sequence + 1) % _SEQUENCES if epoch == self.epoch else 0


class ProducerState:
    """The producers of one log by their ids."""

    __slots__ = ("_ended", "_most", "_open", "_verifications", "entries", "high_watermark")

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries = {} if entries is None else entries
        self._most = MOST_PRODUCERS
        self.high_watermark = 0
        """The high watermark last passed to `committed`."""
        starts = {key: entry.transaction_start for key, entry in self.entries.items() if entry.transaction_start >= 0}
        self._open = {key: self.entries[key] for key in sorted(starts, key=starts.__getitem__)}
        """The producers with open transactions, the oldest first."""
        self._ended: deque[tuple[int, int]] = deque()
        """`(first offset, marker's offset)` of transactions with a marker beyond the high watermark, by marker."""
        self._verifications: dict[int, Verification] = {}
        """By producer id, until the transaction's first batch is appended or they expire."""

    # ---- transactions -------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        first = next(iter(self._open.values())).transaction_start if self._open else None
        if not self._ended:
            return first
        ended = min(self._ended)[0]
        return ended if first is None else min(first, ended)

    @property
    def oldest_transaction_timestamp(self) -> int | None:
        """The last timestamp (ms) of the producer with the oldest open transaction, or None."""
        return next(iter(self._open.values())).last_timestamp if self._open else None

    def committed(self, high_watermark: int) -> None:
        """Record that everything before `high_watermark` is committed."""
        self.high_watermark = high_watermark
        while self._ended and self._ended[0][1] < high_watermark:
            self._ended.popleft()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, now_ms: int, *, bumps_epoch: bool = False
    ) -> Verification | None:
        """Return the verification that a producer's next transactional batch waits for; None if it needs none.

        A batch of an older epoch needs none: it is refused anyway.
        """
        entry, known = self.entries.get(producer_id), self._verifications.get(producer_id)
        if self.has_open_transaction(producer_id, epoch) or (entry is not None and epoch < entry.epoch):
            return None
        if known is None or known.epoch != epoch or known.is_void or known.error is not None:
            known = self._verifications[producer_id] = Verification(epoch, now_ms, bumps_epoch)
        return None if known.is_verified else known

    def take_verifications(self, before: "ProducerState") -> None:
        """Take over the verifications of `before`: a truncation does not change what the coordinator has verified."""
        self._verifications = before._verifications

    def check_verified(self, producer_id: int, epoch: int, first_sequence: int = 0) -> None:
        """Raise `KafkaError` unless the producer's transaction is open or the partition is verified to be in it.

        The error is that of the verification, OUT_OF_ORDER_SEQUENCE_NUMBER (see the module), or INVALID_TXN_STATE.
        """
        if self.has_open_transaction(producer_id, epoch):
            return
        known = self._verifications.get(producer_id)
        if known is not None and known.epoch == epoch:
            if known.error is not None:
                raise known.error
            is_verified = known.is_verified and not known.is_void
            if is_verified and known.bumps_epoch and first_sequence > 0 and producer_id not in self.entries:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {producer_id} began a transaction with sequence {first_sequence}; 0 was expected",
                )
            if is_verified:
                return
        raise KafkaError(
            ErrorCode.invalid_txn_state, f"producer {producer_id} has no transaction that has this partition"
        )

    def check_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, transaction_version: int
    ) -> bool:
        """Return whether the marker must be appended; False for a duplicate. Raises `KafkaError` (see the module)."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return True
        is_new = transaction_version < EPOCH_PER_TRANSACTION or producer_epoch != entry.epoch
        if not is_new and entry.transaction_start < 0:
            return False
        if producer_epoch < entry.epoch or not is_new:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"the end of a transaction has epoch {producer_epoch}; producer {producer_id} has {entry.epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}, "
                f"which ended a transaction of producer {producer_id}",
            )
        return True

    def end_transaction(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, offset: int, timestamp: int
    ) -> AbortedTransaction | None:
        """Record a marker appended at `offset`; return the transaction if the marker aborts it, else None."""
        verification = self._verifications.get(producer_id)
        if verification is not None:
            verification.is_void = True
        entry = self._entry(producer_id, producer_epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = marker.coordinator_epoch
        first = entry.transaction_start
        if first < 0:
            return None
        entry.transaction_start = -1
        del self._open[producer_id]
        if offset >= self.high_watermark:
            self._ended.append((first, offset))
        if marker.type is not ControlType.ABORT:
            return None
        stable = next(iter(self._open.values())).transaction_start if self._open else offset + 1
        return AbortedTransaction(producer_id, first, offset, stable)

    # ---- batches ------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, has_sequence: bool = True) -> AppendedBatch | None:
        """Return the append that `header` repeats, None if the batch must be appended.

        Raises `KafkaError` (see the module). `has_sequence` is False for batches that the broker writes for a producer.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < entry.epoch:
            probe("log: an old producer epoch is fenced")
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} has epoch {epoch}; a newer instance of it has {entry.epoch}",
            )
        expected = entry.due_sequence(epoch)
        if first != expected and has_sequence and entry.epoch != NO_EPOCH:
            known = self.find(header)
            if known is not None:
                probe("log: a duplicate batch is recognised")
                return known
            probe("log: a sequence number is out of order")
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id} sent sequence {first} in epoch {epoch}; {expected} was expected",
            )
        if entry.transaction_start >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has a transaction open since offset {entry.transaction_start}, "
                "and sent a batch that does not belong to it",
            )
        return None

    def find(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the batch among the last five of the same producer epoch that `header` repeats, or None."""
        entry, first = self.entries.get(header.producer_id), header.base_sequence
        if entry is None or header.producer_epoch != entry.epoch or first < 0:
            return None
        last = last_sequence(first, header.last_offset_delta)
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def batches_since(self, offset: int) -> list[tuple[int, int, int]]:
        """Return `(producer id, epoch, first sequence)` of each producer's first known batch from `offset` on."""
        found = []
        for producer_id, entry in self.entries.items():
            batch = next((each for each in entry.batches if each.first_offset >= offset), None)
            if batch is not None and batch.first_sequence >= 0:
                found.append((producer_id, entry.epoch, batch.first_sequence))
        return found

    def update(self, header: BatchHeader, first_offset: int, timestamp: int, *, now_ms: int = -1) -> None:
        """Record a data batch at `first_offset`; `now_ms` is -1 if it is read from the log."""
        producer_id = header.producer_id
        entry = self._entry(producer_id, header.producer_epoch)
        entry.last_timestamp = timestamp
        entry.last_append_ms = now_ms
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = first_offset
            self._open[producer_id] = entry
            self._verifications.pop(producer_id, None)
        first, delta = header.base_sequence, header.last_offset_delta
        last = last_sequence(first, delta) if first >= 0 else NO_SEQUENCE
        batch = AppendedBatch(first, last, first_offset, first_offset + delta, timestamp)
        entry.batches = (*entry.batches[1 - REMEMBERED_BATCHES :], batch)

    def replay(
        self, header: BatchHeader, marker: EndTransactionMarker | None, *, now_ms: int = -1
    ) -> AbortedTransaction | None:
        """Record a batch read from the log, or fetched by a follower, which passes `now_ms`.

        Return the transaction that `marker` aborts, or None.
        """
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.update(header, header.base_offset, header.max_timestamp, now_ms=now_ms)
            return None
        if marker is None:
            return None
        return self.end_transaction(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            offset=header.base_offset,
            timestamp=header.max_timestamp,
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that have no open transaction and a last batch older than `expiration_ms`; return how many.

        The age is by timestamp, as in Kafka, or by append time if that is later.
        """
        self._verifications = {
            key: each for key, each in self._verifications.items() if each.begun_ms >= now_ms - expiration_ms
        }
        old = []
        for producer_id, entry in self.entries.items():
            last_ms = max(entry.last_timestamp, entry.last_append_ms)
            if last_ms <= 0:
                entry.last_append_ms = now_ms
            elif last_ms < now_ms - expiration_ms and entry.transaction_start < 0:
                old.append(producer_id)
        for producer_id in old:
            probe("log: an idle producer expires")
            del self.entries[producer_id]
        return len(old)

    def _forget_idle(self) -> None:
        """Forget half of the producers without an open transaction: those that were idle for longest."""
        idle = [key for key, each in self.entries.items() if each.transaction_start < 0]
        idle.sort(key=lambda key: batches[-1].last_offset if (batches := self.entries[key].batches) else -1)
        for key in idle[: len(idle) // 2]:
            del self.entries[key]
        self._most = max(MOST_PRODUCERS, len(self.entries) * 4 // 3)
        probe("log: the producers that were idle for longest are forgotten")

    def _entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            if len(self.entries) >= self._most:
                self._forget_idle()
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            probe("log: a producer continues with another epoch")
            entry.epoch = epoch
            entry.batches = ()
        return entry


def last_sequence(first: int, last_offset_delta: int) -> int:
    return (first + last_offset_delta) % _SEQUENCES


def first_sequence(last: int, last_offset_delta: int) -> int:
    return (last - last_offset_delta) % _SEQUENCES
