"""Producer ids, epochs and sequences: no hole, and a new epoch where there was one (KIP-98, KIP-360)."""

from odradek.clients.producer.idempotence import Idempotence, ProducerIdentity
from odradek.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def identified(epoch: int = 0) -> Idempotence:
    idempotence = Idempotence()
    idempotence.identified(ProducerIdentity(7, epoch))
    return idempotence


def test_sequences_count_records_per_partition() -> None:
    idempotence = identified()
    assert idempotence.take(T0, 3, is_idle=True) == (ProducerIdentity(7, 0), 0)
    assert idempotence.take(T0, 2, is_idle=False) == (ProducerIdentity(7, 0), 3)
    assert idempotence.take(T1, 1, is_idle=True) == (ProducerIdentity(7, 0), 0)
    assert idempotence.take(T0, 1, is_idle=True) == (ProducerIdentity(7, 0), 5)


def test_sequences_wrap_after_the_greatest_int32() -> None:
    idempotence = identified()
    idempotence.take(T0, 0x7FFFFFFF, is_idle=True)
    assert idempotence.take(T0, 2, is_idle=True)[1] == 0x7FFFFFFF
    assert idempotence.take(T0, 1, is_idle=True)[1] == 1


def test_a_batch_is_next_when_all_before_it_are_acknowledged() -> None:
    idempotence = identified()
    for _ in range(3):
        idempotence.take(T0, 2, is_idle=False)
    assert idempotence.is_next(T0, 0)
    assert not idempotence.is_next(T0, 2)
    idempotence.acknowledge(T0, 0, 2)
    assert idempotence.is_next(T0, 2)
    idempotence.acknowledge(T0, 4, 2)
    idempotence.acknowledge(T0, 2, 2)
    assert idempotence.is_next(T0, 6)


def test_a_hole_starts_that_partition_over_in_the_next_epoch() -> None:
    idempotence = identified()
    idempotence.take(T0, 3, is_idle=True)
    idempotence.take(T1, 3, is_idle=True)
    idempotence.broke(T0)
    idempotence.broke(T0)
    assert idempotence.is_broken(T0)
    assert idempotence.identity == ProducerIdentity(7, 1)
    idempotence.start_over(T0)
    assert not idempotence.is_broken(T0)
    assert idempotence.take(T0, 1, is_idle=True) == (ProducerIdentity(7, 1), 0)


def test_another_partition_changes_to_the_new_epoch_only_when_it_waits_for_nothing() -> None:
    idempotence = identified()
    idempotence.take(T0, 3, is_idle=True)
    idempotence.take(T1, 3, is_idle=True)
    idempotence.broke(T0)
    assert idempotence.take(T1, 1, is_idle=False) == (ProducerIdentity(7, 0), 3)
    assert idempotence.take(T1, 1, is_idle=True) == (ProducerIdentity(7, 1), 0)


def test_two_holes_of_one_epoch_cost_one_epoch() -> None:
    idempotence = identified()
    for partition in (T0, T1):
        idempotence.take(partition, 1, is_idle=True)
    idempotence.broke(T0)
    idempotence.broke(T1)
    assert idempotence.identity == ProducerIdentity(7, 1)


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    idempotence = identified(epoch=0x7FFF)
    idempotence.take(T0, 1, is_idle=True)
    idempotence.broke(T0)
    assert idempotence.identity is None
