"""Batches that a broker refused because the leader of a partition changed, and the order in which clients resend them.

A client may learn of a new leader before that broker itself does, and its first batches are refused. When the broker
leads, it must not append the client's later batches before the refused ones (`odradek.log.producers.refused_batches`).

A client may also send the new leader a batch before the one that the former leader refused, as librdkafka does. After
OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka would begin a new epoch and send batches that are in the log again as new ones.
So for some time after an election the leader returns NOT_LEADER_OR_FOLLOWER instead, after which the client sends all
of them again in order. Kafka does not do this.
"""

from typing import Final
from uuid import UUID

from odradek.log.producers.refused_batches import RefusedBatches
from odradek.model import Buffer, ErrorCode, KafkaError

PartitionKey = tuple[str | UUID, int]
"""The topic's name or id, as the client named it, and the partition's number."""
_ELECTION_MS: Final = 10_000
"""Time after an election in which a gap in a producer's sequence is attributed to the election."""
_MOST_PARTITIONS: Final = 1_000
_MOST_PRODUCERS: Final = 32
"""Limit per partition. Beyond these limits the oldest are dropped: a client may use a wrong broker forever."""


def is_consequence_of_election(error: KafkaError, leader_epoch: int, elected_ms: int, now_ms: int) -> bool:
    """Return whether a gap in a producer's sequence is attributed to the last election.

    The batches in the gap are those that the former leader refused; the client has not sent them again yet.
    """
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
        """Move the refused batches of a partition, by its keys, to those of its log, when this broker leads it."""
        for key in keys:
            refused = self._by_partition.pop(key, None)
            if refused is not None:
                to.add_all(refused)
