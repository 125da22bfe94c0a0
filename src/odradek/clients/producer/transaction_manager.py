"""Producer id, epoch and sequences of an idempotent or transactional producer (KIP-98, KIP-360).

Sequences count a partition's records without gaps. After a gap (a failed batch, a broker that lost its state) the
partition restarts from 0 in the next producer epoch, when each of its batches that was sent was answered: with an error
that tells that it was not appended, it is sent again in the new epoch. Other partitions change to the new epoch when
they have no batch in flight or to retry. So brokers still detect all duplicates.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from odradek.model import TopicPartition

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_MAX_EPOCH: Final = 0x7FFF


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class _PartitionSequence(Struct):
    producer_id_and_epoch: ProducerIdAndEpoch
    next: int = 0
    last_acked: int = -1
    needs_new_epoch: bool = False


class TransactionManager:
    """The sequences of an idempotent producer. `producer_id_and_epoch` is None when InitProducerId must be sent.

    Only the coordinator gives a transactional producer its epochs, so `request_epoch_bump` leaves them unchanged.
    """

    def __init__(self, *, is_transactional: bool = False) -> None:
        self._is_transactional = is_transactional
        self.producer_id_and_epoch: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, _PartitionSequence] = {}

    def set_producer_id_and_epoch(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        self.producer_id_and_epoch = producer_id_and_epoch

    def needs_new_sequences(self, partition: TopicPartition) -> bool:
        """Return whether the partition must restart its sequences before its next batch."""
        sequence = self._sequences.get(partition)
        return sequence is not None and sequence.needs_new_epoch

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """Make the partition restart its sequences in the next epoch, after a gap or an unknown producer id."""
        sequence = self._sequences.get(partition)
        if sequence is None or sequence.needs_new_epoch or self._is_transactional:
            return
        sequence.needs_new_epoch = True
        if sequence.producer_id_and_epoch == self.producer_id_and_epoch:
            self._bump_epoch()

    def start_sequences_at_beginning(self, partition: TopicPartition) -> None:
        """Restart the sequences from 0 in the current epoch; nothing of the partition may be in flight."""
        self._sequences.pop(partition, None)

    def assign_sequence(
        self, partition: TopicPartition, count: int, *, is_idle: bool
    ) -> tuple[ProducerIdAndEpoch, int]:
        """Return producer id, epoch and base sequence for the partition's next `count` records.

        If `is_idle` (no batch in flight or to retry), the partition changes to the current epoch.
        """
        assert self.producer_id_and_epoch is not None
        sequence = self._sequences.get(partition)
        if sequence is None or (is_idle and sequence.producer_id_and_epoch != self.producer_id_and_epoch):
            sequence = self._sequences[partition] = _PartitionSequence(self.producer_id_and_epoch)
        assert not sequence.needs_new_epoch, f"{partition} must start over first"
        base = sequence.next
        sequence.next = (base + count) & _SEQUENCE_MASK
        return sequence.producer_id_and_epoch, base

    def update_last_acked_sequence(self, partition: TopicPartition, base_sequence: int, count: int) -> None:
        """Record the acknowledged sequences of a batch, unless a later batch was acknowledged before."""
        sequence = self._sequences.get(partition)
        if sequence is None:
            return
        last = (base_sequence + count - 1) & _SEQUENCE_MASK
        if (last - sequence.last_acked) & _SEQUENCE_MASK < _SEQUENCE_MASK // 2:
            sequence.last_acked = last

    def waits_for_first_ack(self, partition: TopicPartition) -> bool:
        """Return whether sequences were assigned and none is acknowledged: then only one batch may be in flight.

        A leader without state of the producer accepts any sequence. If it refused the first batch and appended the
        second, it would refuse every retry of the first.
        """
        sequence = self._sequences.get(partition)
        return sequence is not None and sequence.last_acked < 0

    def is_next_sequence(self, partition: TopicPartition, base_sequence: int) -> bool:
        """Return whether all earlier sequences are acknowledged: then an out of order error means lost records."""
        sequence = self._sequences.get(partition)
        return sequence is not None and base_sequence == (sequence.last_acked + 1) & _SEQUENCE_MASK

    def _bump_epoch(self) -> None:
        """Bump the epoch without a request (no transactions); after the last epoch, clear the producer id."""
        current = self.producer_id_and_epoch
        if current is None:
            return
        self.producer_id_and_epoch = None if current.epoch == _MAX_EPOCH else current._replace(epoch=current.epoch + 1)
