"""Batches that came to the wrong leader, or in the wrong order, because the leader changed.

A client that learns of a new leader early sends batches before this broker knows that it leads. Once it does, the
batches that are on their way must not be taken before the refused ones (see `odradek.log.producers.refused_batches`).

A client may also send the new leader a batch before the one that the former leader refused, as librdkafka does. For
OUT_OF_ORDER_SEQUENCE_NUMBER it would take a new epoch and send written batches again as new ones, so for some time a
new leader answers NOT_LEADER_OR_FOLLOWER, and the client sends all of them again in order. Kafka does not do this.
"""

from typing import Final
from uuid import UUID

from odradek.log.producers.refused_batches import RefusedBatches
from odradek.model import ErrorCode, KafkaError
from odradek.runtime import Buffer

PartitionKey = tuple[str | UUID, int]
"""The topic's name or id, as the client named it, and the partition's number."""
_ELECTION_MS: Final = 10_000
"""How long after an election a gap in a producer's sequence is taken for its consequence."""
_MOST_PARTITIONS: Final = 1_000
_MOST_PRODUCERS: Final = 32
"""The limit per partition. Beyond these limits the oldest are dropped: a client may use a wrong broker forever."""


def is_consequence_of_election(error: KafkaError, leader_epoch: int, elected_ms: int, now_ms: int) -> bool:
    """Return whether an append failed because batches of the former leader's time are sent again first."""
    is_gap = error.code is ErrorCode.out_of_order_sequence_number
    return is_gap and leader_epoch > 0 and 0 <= now_ms - elected_ms < _ELECTION_MS


class RefusedAppends:
    """The refused batches by partition, until this broker leads the partition."""

    def __init__(self) -> None:
        self._by_partition: dict[PartitionKey, RefusedBatches] = {}

    def note(self, key: PartitionKey, batch: Buffer, error: KafkaError, now_ms: int) -> None:
        """Remember that a client's `batch` for a partition that this broker does not lead was refused."""
        refused = self._by_partition.pop(key, None) or RefusedBatches(most_producers=_MOST_PRODUCERS)
        if refused.note_batch(batch, error, now_ms) or refused:
            self._by_partition[key] = refused
        if len(self._by_partition) > _MOST_PARTITIONS:
            del self._by_partition[next(iter(self._by_partition))]

    def move(self, *keys: PartitionKey, to: RefusedBatches) -> None:
        """Move the refused batches of a partition that this broker leads from now on to those of its log."""
        for key in keys:
            refused = self._by_partition.pop(key, None)
            if refused is not None:
                to.add_all(refused)
