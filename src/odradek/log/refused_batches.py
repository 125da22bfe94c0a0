"""What a log refuses because an earlier batch of the same producer was refused for a passing reason.

An idempotent producer has up to five batches on their way. If the first is refused, because the disk has no room or too
few replicas are in sync, the next ones skip its sequence numbers. Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER to them,
at which librdkafka takes a new epoch and sends everything again that is in doubt, in all partitions: what was written
and not yet acknowledged is in those logs twice. Here they get the first one's error, and are sent again in order.
"""

from typing import Final, NamedTuple

from odradek.log.producer_state import ProducerEntry
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.record_batch import BatchHeader

_MOST_PRODUCERS: Final = 10_000
"""Those that were refused first are forgotten: any client may make up producer ids."""


class _Refusal(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    message: str


class RefusedBatches:
    """The first refused batch of each producer, until it is taken, or its producer has another epoch."""

    def __init__(self) -> None:
        self._refusals: dict[int, _Refusal] = {}

    def note(self, producer_id: int, epoch: int, sequence: int, entry: ProducerEntry | None, error: KafkaError) -> None:
        """Remember that a batch was refused with `error`, if it was due by the producer's `entry`."""
        known = self._refusals.pop(producer_id, None)
        is_behind = (
            known is not None and known.epoch == epoch if entry is None else sequence != entry.due_sequence(epoch)
        )
        if not is_behind:
            self._refusals[producer_id] = _Refusal(epoch, sequence, error.code, str(error))
        elif known is not None:
            self._refusals[producer_id] = known
        if len(self._refusals) > _MOST_PRODUCERS:
            del self._refusals[next(iter(self._refusals))]

    def check(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        """Raise the `KafkaError` of the batch that should come before `header`'s, if that was refused."""
        refusal = self._refusals.get(header.producer_id)
        if refusal is None or refusal.epoch != header.producer_epoch or refusal.sequence == header.base_sequence:
            return
        if entry is None or refusal.sequence == entry.due_sequence(refusal.epoch):
            raise KafkaError(
                refusal.code,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, and {refusal.sequence} was "
                f"refused: {refusal.message}",
            )

    def taken(self, producer_id: int) -> None:
        """Forget what was refused: a batch of the producer was taken."""
        self._refusals.pop(producer_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._refusals.clear()
