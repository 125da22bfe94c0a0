"""By what a broker knows what it has already: a producer id, an epoch, a sequence per partition (KIP-98, KIP-360).

Sequences count records and must not have a hole. Whatever leaves one (a batch given up, a broker that forgot us) makes
that partition start over from 0 in the next epoch, once nothing of it is in flight. Other partitions change to that
epoch when nothing of theirs is unanswered, so that their own retries keep the numbers by which they are recognised.
"""

from typing import Final, NamedTuple

from odradek.model import TopicPartition
from odradek.model.values import dataclass

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_MAX_EPOCH: Final = 0x7FFF


class ProducerIdAndEpoch(NamedTuple):
    """Who a broker knows us as."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class _PartitionSequence:
    """The producer id, the next sequence and the last acknowledged sequence of one partition."""

    producer_id_and_epoch: ProducerIdAndEpoch
    next: int = 0
    last_acked: int = -1
    needs_new_epoch: bool = False


class TransactionManager:
    """The sequences of an idempotent producer; `producer_id_and_epoch` is None until set and after the last epoch."""

    def __init__(self) -> None:
        self.producer_id_and_epoch: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, _PartitionSequence] = {}

    def set_producer_id_and_epoch(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """A broker gave us an id."""
        self.producer_id_and_epoch = producer_id_and_epoch

    def needs_new_sequences(self, partition: TopicPartition) -> bool:
        """Whether the partition must start over before anything is sent to it."""
        sequence = self._sequences.get(partition)
        return sequence is not None and sequence.needs_new_epoch

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """There is a hole in the partition's numbers, or the broker does not know them."""
        sequence = self._sequences.get(partition)
        if sequence is None or sequence.needs_new_epoch:
            return
        sequence.needs_new_epoch = True
        if sequence.producer_id_and_epoch == self.producer_id_and_epoch:
            self._bump_epoch()

    def start_sequences_at_beginning(self, partition: TopicPartition) -> None:
        """Count from 0 under the current producer_id_and_epoch. Only while nothing of the partition is in flight."""
        self._sequences.pop(partition, None)

    def assign_sequence(
        self, partition: TopicPartition, count: int, *, is_idle: bool
    ) -> tuple[ProducerIdAndEpoch, int]:
        """Identity and base sequence of the next `count` records. `is_idle`: nothing of the partition is unanswered."""
        assert self.producer_id_and_epoch is not None
        sequence = self._sequences.get(partition)
        if sequence is None or (is_idle and sequence.producer_id_and_epoch != self.producer_id_and_epoch):
            sequence = self._sequences[partition] = _PartitionSequence(self.producer_id_and_epoch)
        assert not sequence.needs_new_epoch, f"{partition} must start over first"
        base = sequence.next
        sequence.next = (base + count) & _SEQUENCE_MASK
        return sequence.producer_id_and_epoch, base

    def update_last_acked_sequence(self, partition: TopicPartition, base_sequence: int, count: int) -> None:
        """The broker has these records. An older batch may be answered later; that takes nothing back."""
        sequence = self._sequences.get(partition)
        if sequence is None:
            return
        last = (base_sequence + count - 1) & _SEQUENCE_MASK
        if (last - sequence.last_acked) & _SEQUENCE_MASK < _SEQUENCE_MASK // 2:
            sequence.last_acked = last

    def is_next_sequence(self, partition: TopicPartition, base_sequence: int) -> bool:
        """Whether all before `base_sequence` are last_acked: then a broker has no reason to call it out of order."""
        sequence = self._sequences.get(partition)
        return sequence is not None and base_sequence == (sequence.last_acked + 1) & _SEQUENCE_MASK

    def _bump_epoch(self) -> None:
        """Without transactions a producer raises its epoch itself, and needs a new id after the last one."""
        current = self.producer_id_and_epoch
        if current is None:
            return
        self.producer_id_and_epoch = None if current.epoch == _MAX_EPOCH else current._replace(epoch=current.epoch + 1)
