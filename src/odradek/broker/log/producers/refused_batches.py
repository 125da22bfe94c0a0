"""Batches of idempotent producers that the broker refused with a retriable error.

Batches sent after a refused one leave a gap in the sequence numbers. Kafka then returns OUT_OF_ORDER_SEQUENCE_NUMBER,
and librdkafka takes a new epoch and sends written batches again as new ones. This broker returns the refused batch's
error again, and the producer retries all batches in order.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from odradek.broker.log.producers.producer_state import ProducerEntry
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header, verify_crc

_MOST_PRODUCERS: Final = 10_000
"""The limit of producers, beyond which the oldest are removed, because clients can invent producer ids."""
_MOST_SEQUENCES: Final = 8
"""Limit per producer, which has at most five batches in flight."""
_KEPT_MS: Final = 30_000
"""Refusals expire after this, because a producer retries sooner, or never."""
_SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap to 0 at this number."""


class _Refusals(Struct):
    """The refused batches of one producer in one epoch."""

    epoch: int
    code: ErrorCode
    message: str
    until_ms: dict[int, int] = field(default_factory=dict)
    """The time when each refusal expires, by the base sequence of its batch; the one refused last is last.

    Each batch has its own time: later refusals must not prolong that of a batch which its producer never sends again,
    because another leader acknowledged it, and lost it.
    """

    def current(self, now_ms: int) -> list[int]:
        """Return the base sequences whose refusals hold; not those from before the clock was set back."""
        return [each for each, until_ms in self.until_ms.items() if 0 <= until_ms - now_ms <= _KEPT_MS]

    def add(self, until_ms: Mapping[int, int]) -> None:
        """Add batches, or move them to the end; beyond the limit the oldest are removed."""
        for sequence, its_ms in until_ms.items():
            self.until_ms.pop(sequence, None)
            self.until_ms[sequence] = its_ms
        while len(self.until_ms) > _MOST_SEQUENCES:
            del self.until_ms[next(iter(self.until_ms))]

    def due_before(self, sequence: int, entry: ProducerEntry | None, now_ms: int) -> int | None:
        """Return the sequence of the refused batch that must precede the batch at `sequence`, or None."""
        refused = self.current(now_ms)
        if entry is not None:
            due = entry.due_sequence(self.epoch)
            return due if due in refused and due != sequence else None
        distances = [(sequence - each) % _SEQUENCES for each in refused]
        farthest = max((each for each in distances if each < _SEQUENCES // 2), default=0)
        return (sequence - farthest) % _SEQUENCES if farthest else None


class RefusedBatches:
    """The refused batches of one partition by their producers' ids."""

    def __init__(self, *, most_producers: int = _MOST_PRODUCERS) -> None:
        self._refusals: dict[int, _Refusals] = {}
        self._most_producers = most_producers

    def __len__(self) -> int:
        return len(self._refusals)

    def note_batch(self, batch: Buffer, error: KafkaError, now_ms: int) -> bool:
        """Record that a client's `batch` was refused with `error`; return False if it is damaged or not idempotent."""
        if len(batch) < HEADER_SIZE:
            return False
        header = read_header(batch)
        if (
            header.magic != MAGIC
            or header.producer_id < 0
            or header.base_sequence < 0
            or header.size != len(batch)
            or not verify_crc(batch, 0, header)
        ):
            return False
        self.note(header.producer_id, header.producer_epoch, header.base_sequence, error, now_ms)
        return True

    def note(self, producer_id: int, epoch: int, sequence: int, error: KafkaError, now_ms: int) -> None:
        self._merge(producer_id, _Refusals(epoch, error.code, str(error), {sequence: now_ms + _KEPT_MS}))

    def add_all(self, other: "RefusedBatches") -> None:
        for producer_id, refusals in other._refusals.items():
            self._merge(producer_id, refusals)

    def _merge(self, producer_id: int, new: _Refusals) -> None:
        known = self._refusals.pop(producer_id, new)
        if known.epoch < new.epoch:
            known = new
        elif known is not new and known.epoch == new.epoch:
            known.code, known.message = new.code, new.message
            known.add(new.until_ms)
        self._refusals[producer_id] = known
        if len(self._refusals) > self._most_producers:
            del self._refusals[next(iter(self._refusals))]

    def check(self, header: BatchHeader, entry: ProducerEntry | None, now_ms: int) -> None:
        """Raise the error of the refused batch that must precede the batch of `header`, if any."""
        known = self._refusals.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return
        due = known.due_before(header.base_sequence, entry, now_ms)
        if due is not None:
            raise KafkaError(
                known.code,
                f"producer {header.producer_id} sent sequence {header.base_sequence} after {due} was refused: "
                f"{known.message}",
            )

    def expire(self, now_ms: int) -> None:
        if self._refusals:
            self._refusals = {key: each for key, each in self._refusals.items() if each.current(now_ms)}
