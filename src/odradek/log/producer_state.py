"""What a log knows of its idempotent producers: which sequence number is due, and which batches it has already.

An idempotent producer numbers its records per partition; a batch carries the first number. The log takes a batch only
if it continues the last one, answers a repetition of one of the last five with the offsets that it got the first time,
and refuses all else. The state is nothing but replayed batches: it is rebuilt from a snapshot and what follows it.

| the batch's producer | and its sequence | answer |
|---|---|---|
| is unknown, or has no epoch | any | taken: earlier records may be gone by retention |
| has an older epoch | any | INVALID_PRODUCER_EPOCH: a newer instance has taken over |
| has a newer epoch | 0 | taken |
| has a newer epoch | another | OUT_OF_ORDER_SEQUENCE_NUMBER |
| has the same epoch | first and last of one of its last five batches | duplicate |
| has the same epoch | follows the last one (0 follows 2**31 - 1) | taken |
| has the same epoch | another | OUT_OF_ORDER_SEQUENCE_NUMBER |
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.model import ErrorCode, KafkaError
from odradek.protocol.record_batch import BatchHeader

REMEMBERED_BATCHES: Final = 5
"""As many as a producer may have on their way at once."""
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
_SEQUENCES: Final = 2**31


class AppendedBatch(NamedTuple):
    """A batch that is in the log. `timestamp` is its largest, in ms."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer: its epoch and its last batches, the newest last.

    `coordinator_epoch` and `transaction_start` are of the transaction that is open, -1 if none is.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(
        self,
        epoch: int,
        batches: Iterable[AppendedBatch] = (),
        *,
        last_timestamp: int = -1,
        coordinator_epoch: int = -1,
        transaction_start: int = -1,
    ) -> None:
        self.epoch = epoch
        self.batches = deque(batches, REMEMBERED_BATCHES)
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.transaction_start = transaction_start

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one log by their ids."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries = {} if entries is None else entries

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """The batch that `header` repeats, or None if it is to be appended; see the table in the module.

        Raises `KafkaError` OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch == entry.epoch:
            expected = (entry.last_sequence + 1) % _SEQUENCES
            if first == expected:
                return None
            last = last_sequence(first, header.last_offset_delta)
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        elif epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} has epoch {epoch}; a newer instance of it has {entry.epoch}",
            )
        elif entry.epoch == NO_EPOCH:
            return None
        else:
            expected = 0
            if first == expected:
                return None
        raise KafkaError(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence {first} in epoch {epoch}; {expected} was due",
        )

    def update(self, header: BatchHeader, first_offset: int, timestamp: int) -> None:
        """Note a batch that was appended at `first_offset`. `timestamp` is its largest, in ms.

        Checks nothing: a replayed batch was checked by the leader that appended it.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = timestamp
        if header.is_control:
            entry.transaction_start = -1
            return
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = first_offset
        first, delta = header.base_sequence, header.last_offset_delta
        last = last_sequence(first, delta)
        entry.batches.append(AppendedBatch(first, last, first_offset, first_offset + delta, timestamp))

    def replay(self, header: BatchHeader) -> None:
        """Note a batch that was read from the log."""
        if header.producer_id >= 0:
            self.update(header, header.base_offset, header.max_timestamp)

    def expire(self, before_ms: int) -> int:
        """Forget producers without a transaction whose last batch is older than `before_ms`; how many."""
        old = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.last_timestamp < before_ms and entry.transaction_start < 0
        ]
        for producer_id in old:
            del self.entries[producer_id]
        return len(old)


def last_sequence(first: int, last_offset_delta: int) -> int:
    """The sequence number of a batch's last record; after 2**31 - 1 comes 0."""
    return (first + last_offset_delta) % _SEQUENCES


def first_sequence(last: int, last_offset_delta: int) -> int:
    """The sequence number of a batch's first record, from its last one's."""
    return (last - last_offset_delta) % _SEQUENCES
