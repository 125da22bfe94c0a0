"""Refused batches of partitions that this broker does not lead.

A client that learns of a new leader early sends batches before this broker knows that it leads. Once it does, the
batches that are on their way must not be taken before the refused ones (see `odradek.log.producers.refused_batches`).
"""

from typing import Final

from odradek.log.producers.refused_batches import RefusedBatches
from odradek.model import KafkaError, TopicPartition
from odradek.runtime import Buffer

_MOST_PARTITIONS: Final = 1_000
_MOST_PRODUCERS: Final = 100
"""Of one partition. Beyond these limits the oldest are forgotten: a client can ask the wrong broker for ever."""


class RefusedAppends:
    """The refused batches by partition, until this broker leads the partition."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, RefusedBatches] = {}

    def note(self, key: TopicPartition, batch: Buffer | None, error: KafkaError, now_ms: int) -> None:
        """Remember that a client's `batch` for a partition that this broker does not lead was refused."""
        if batch is None:
            return
        refused = self._by_partition.get(key)
        if refused is None:
            refused = self._by_partition[key] = RefusedBatches(most_producers=_MOST_PRODUCERS)
            if len(self._by_partition) > _MOST_PARTITIONS:
                del self._by_partition[next(iter(self._by_partition))]
        refused.note_batch(batch, error, now_ms)

    def take(self, key: TopicPartition) -> RefusedBatches | None:
        """Return the refused batches of a partition that this broker leads from now on, and forget them here."""
        return self._by_partition.pop(key, None)
