"""Batches that a broker refused because the leader of a partition changed, and the order in which clients resend them.

A client may get the metadata of a new leader before that broker does. The broker then refuses the first batches. When
it leads, it must not append the client's later batches before the refused ones
(`odradek.broker.log.producers.refused_batches`).

librdkafka may also send the new leader a later batch before the one that the former leader refused. After
OUT_OF_ORDER_SEQUENCE_NUMBER it would begin a new producer epoch, and send batches that are in the log as new ones. So
for some time after an election the leader, unlike Kafka, returns NOT_LEADER_OR_FOLLOWER, and the client sends all
batches again in order.
"""

from typing import Final
from uuid import UUID

from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.model import Buffer, ErrorCode, KafkaError

PartitionKey = tuple[str | UUID, int]
"""The topic's name or id, whichever the request had, and the partition's number."""
_ELECTION_MS: Final = 10_000
"""Time after an election in which a gap in a producer's sequence is attributed to the election."""
_MOST_PARTITIONS: Final = 1_000
_MOST_PRODUCERS: Final = 32
"""Limit per partition. Beyond the limits the oldest are dropped, as a client may use a wrong broker forever."""


def is_consequence_of_election(error: KafkaError, leader_epoch: int, elected_ms: int, now_ms: int) -> bool:
    """Return whether `error` is a gap in a producer's sequence that the former leader's refusals may have caused."""
    is_gap = error.code is ErrorCode.out_of_order_sequence_number
    return is_gap and leader_epoch > 0 and 0 <= now_ms - elected_ms < _ELECTION_MS


class RefusedAppends:
    """The refused batches by partition, until this broker leads the partition."""

    def __init__(self) -> None:
        self._by_partition: dict[PartitionKey, RefusedBatches] = {}

    def note(self, key: PartitionKey, batch: Buffer, error: KafkaError, now_ms: int) -> None:
        """Record that a client's `batch` was refused, because this broker does not lead its partition."""
        refused = self._by_partition.pop(key, None) or RefusedBatches(most_producers=_MOST_PRODUCERS)
        if refused.note_batch(batch, error, now_ms) or refused:
            self._by_partition[key] = refused
        if len(self._by_partition) > _MOST_PARTITIONS:
            del self._by_partition[next(iter(self._by_partition))]

    def move(self, *keys: PartitionKey, to: RefusedBatches) -> None:
        """Move the batches under all `keys` of a partition to its log's refused batches, as this broker leads now."""
        for key in keys:
            refused = self._by_partition.pop(key, None)
            if refused is not None:
                to.add_all(refused)
