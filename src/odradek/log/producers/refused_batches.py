"""The batches of idempotent producers that a broker refused for a passing reason.

An idempotent producer has up to five batches on their way. If the first is refused, because the disk has no room, too
few replicas are in sync, or the broker does not lead the partition yet, the next ones skip its sequence numbers. Kafka
answers OUT_OF_ORDER_SEQUENCE_NUMBER to them. librdkafka then takes a new epoch and sends all batches that are in doubt
again, in all partitions, so that records that were written and not yet acknowledged are in those logs twice. This
broker answers with the first batch's error instead, and the producer sends the batches again in order.
"""

from typing import Final

from odradek.log.producers.producer_state import ProducerEntry
from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass, field
from odradek.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header, verify_crc
from odradek.runtime import Buffer

_MOST_PRODUCERS: Final = 10_000
"""The producers that were refused first are forgotten: any client may make up producer ids."""
_MOST_SEQUENCES: Final = 64
"""Of one producer. Idempotent producers have at most five batches on their way."""
_KEPT_MS: Final = 30_000
"""A producer that has not tried again for this long has given the batch up."""


@dataclass(slots=True)
class _Refusals:
    """The refused batches of one producer in one epoch."""

    epoch: int
    code: ErrorCode
    message: str
    until_ms: int
    sequences: dict[int, None] = field(default_factory=dict)
    """The first sequence numbers of the batches, in the order in which they were refused."""


class RefusedBatches:
    """The refused batches of one partition by their producers' ids."""

    def __init__(self, *, most_producers: int = _MOST_PRODUCERS) -> None:
        self._refusals: dict[int, _Refusals] = {}
        self._most_producers = most_producers

    def note_batch(self, batch: Buffer, error: KafkaError, now_ms: int) -> None:
        """Remember that a client's `batch` was refused with `error`, if an idempotent producer sent it."""
        if len(batch) < HEADER_SIZE:
            return
        header = read_header(batch)
        if (
            header.magic == MAGIC
            and header.producer_id >= 0
            and header.base_sequence >= 0
            and header.size == len(batch)
            and verify_crc(batch, 0, header)
        ):
            self.note(header.producer_id, header.producer_epoch, header.base_sequence, error, now_ms)

    def note(self, producer_id: int, epoch: int, sequence: int, error: KafkaError, now_ms: int) -> None:
        """Remember that the batch that begins with `sequence` was refused with `error`."""
        known = self._refusals.pop(producer_id, None)
        if known is None or known.epoch != epoch or known.until_ms < now_ms:
            known = _Refusals(epoch, error.code, str(error), now_ms + _KEPT_MS)
        known.code, known.message, known.until_ms = error.code, str(error), now_ms + _KEPT_MS
        known.sequences.setdefault(sequence)
        if len(known.sequences) > _MOST_SEQUENCES:
            del known.sequences[next(iter(known.sequences))]
        self._refusals[producer_id] = known
        if len(self._refusals) > self._most_producers:
            del self._refusals[next(iter(self._refusals))]

    def check(self, header: BatchHeader, entry: ProducerEntry | None, now_ms: int) -> None:
        """Raise the `KafkaError` of the batch that is due before `header`'s by the producer's `entry`, if refused."""
        known = self._refusals.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch or known.until_ms < now_ms:
            return
        due = next(iter(known.sequences)) if entry is None else entry.due_sequence(known.epoch)
        if due in known.sequences and due != header.base_sequence:
            raise KafkaError(
                known.code,
                f"producer {header.producer_id} sent sequence {header.base_sequence} after {due} was refused: "
                f"{known.message}",
            )

    def add_all(self, other: "RefusedBatches") -> None:
        """Remember what `other` does, too; its refusals replace those of the same producers."""
        self._refusals.update(other._refusals)

    def expire(self, now_ms: int) -> None:
        """Forget the batches of producers that have not tried again for 30 s."""
        if self._refusals:
            self._refusals = {key: each for key, each in self._refusals.items() if each.until_ms >= now_ms}
