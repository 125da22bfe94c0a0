"""By what a broker knows what it has already: a producer id, an epoch, a sequence per partition (KIP-98, KIP-360).

Sequences count records and must not have a hole. Whatever leaves one (a batch given up, a broker that forgot us) makes
that partition start over from 0 in the next epoch, once nothing of it is in flight. Other partitions change to that
epoch when nothing of theirs is unanswered, so that their own retries keep the numbers by which they are recognised.
"""

from typing import Final, NamedTuple

from odradek.model import TopicPartition
from odradek.model.values import dataclass

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_LAST_EPOCH: Final = 0x7FFF


class ProducerIdentity(NamedTuple):
    """Who a broker knows us as."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class _Sequence:
    """A partition's identity and next number, and the number that the broker must have acknowledged before."""

    identity: ProducerIdentity
    next: int = 0
    acknowledged: int = -1
    broken: bool = False


class Idempotence:
    """Pure: no clock, no wire. `identity` is None until `identified`, and again when epochs have run out."""

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, _Sequence] = {}

    def identified(self, identity: ProducerIdentity) -> None:
        """A broker gave us an id."""
        self.identity = identity

    def is_broken(self, partition: TopicPartition) -> bool:
        """Whether the partition must start over before anything is sent to it."""
        sequence = self._sequences.get(partition)
        return sequence is not None and sequence.broken

    def broke(self, partition: TopicPartition) -> None:
        """There is a hole in the partition's numbers, or the broker does not know them."""
        sequence = self._sequences.get(partition)
        if sequence is None or sequence.broken:
            return
        sequence.broken = True
        if sequence.identity == self.identity:
            self._next_epoch()

    def start_over(self, partition: TopicPartition) -> None:
        """Count from 0 under the current identity. Only while nothing of the partition is in flight."""
        self._sequences.pop(partition, None)

    def take(self, partition: TopicPartition, count: int, *, is_idle: bool) -> tuple[ProducerIdentity, int]:
        """Identity and base sequence of the next `count` records. `is_idle`: nothing of the partition is unanswered."""
        assert self.identity is not None
        sequence = self._sequences.get(partition)
        if sequence is None or (is_idle and sequence.identity != self.identity):
            sequence = self._sequences[partition] = _Sequence(self.identity)
        assert not sequence.broken, f"{partition} must start over first"
        base = sequence.next
        sequence.next = (base + count) & _SEQUENCE_MASK
        return sequence.identity, base

    def acknowledge(self, partition: TopicPartition, base_sequence: int, count: int) -> None:
        """The broker has these records. An older batch may be answered later; that takes nothing back."""
        sequence = self._sequences.get(partition)
        if sequence is None:
            return
        last = (base_sequence + count - 1) & _SEQUENCE_MASK
        if (last - sequence.acknowledged) & _SEQUENCE_MASK < _SEQUENCE_MASK // 2:
            sequence.acknowledged = last

    def is_next(self, partition: TopicPartition, base_sequence: int) -> bool:
        """Whether all before `base_sequence` are acknowledged: then a broker has no reason to call it out of order."""
        sequence = self._sequences.get(partition)
        return sequence is not None and base_sequence == (sequence.acknowledged + 1) & _SEQUENCE_MASK

    def _next_epoch(self) -> None:
        """Without transactions a producer raises its epoch itself, and needs a new id after the last one."""
        identity = self.identity
        if identity is None:
            return
        self.identity = None if identity.epoch == _LAST_EPOCH else identity._replace(epoch=identity.epoch + 1)
