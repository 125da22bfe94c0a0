"""Producer ids, epochs and sequences: a gap starts a new epoch (KIP-98, KIP-360)."""

from odradek.clients.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager
from odradek.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def identified(epoch: int = 0) -> TransactionManager:
    manager = TransactionManager()
    manager.set_producer_id_and_epoch(ProducerIdAndEpoch(7, epoch))
    return manager


def test_sequences_count_records_per_partition() -> None:
    manager = identified()
    assert manager.assign_sequence(T0, 3, is_idle=True) == (ProducerIdAndEpoch(7, 0), 0)
    assert manager.assign_sequence(T0, 2, is_idle=False) == (ProducerIdAndEpoch(7, 0), 3)
    assert manager.assign_sequence(T1, 1, is_idle=True) == (ProducerIdAndEpoch(7, 0), 0)
    assert manager.assign_sequence(T0, 1, is_idle=True) == (ProducerIdAndEpoch(7, 0), 5)


def test_sequences_wrap_after_the_greatest_int32() -> None:
    manager = identified()
    manager.assign_sequence(T0, 0x7FFFFFFF, is_idle=True)
    assert manager.assign_sequence(T0, 2, is_idle=True)[1] == 0x7FFFFFFF
    assert manager.assign_sequence(T0, 1, is_idle=True)[1] == 1


def test_a_batch_is_next_when_all_before_it_are_acknowledged() -> None:
    manager = identified()
    for _ in range(3):
        manager.assign_sequence(T0, 2, is_idle=False)
    assert manager.is_next_sequence(T0, 0)
    assert not manager.is_next_sequence(T0, 2)
    manager.update_last_acked_sequence(T0, 0, 2)
    assert manager.is_next_sequence(T0, 2)
    manager.update_last_acked_sequence(T0, 4, 2)
    manager.update_last_acked_sequence(T0, 2, 2)
    assert manager.is_next_sequence(T0, 6)


def test_a_sequence_gap_restarts_the_partition_in_the_next_epoch() -> None:
    manager = identified()
    manager.assign_sequence(T0, 3, is_idle=True)
    manager.assign_sequence(T1, 3, is_idle=True)
    manager.request_epoch_bump(T0)
    manager.request_epoch_bump(T0)
    assert manager.needs_new_sequences(T0)
    assert manager.producer_id_and_epoch == ProducerIdAndEpoch(7, 1)
    manager.start_sequences_at_beginning(T0)
    assert not manager.needs_new_sequences(T0)
    assert manager.assign_sequence(T0, 1, is_idle=True) == (ProducerIdAndEpoch(7, 1), 0)


def test_other_partitions_change_to_the_new_epoch_when_nothing_is_in_flight() -> None:
    manager = identified()
    manager.assign_sequence(T0, 3, is_idle=True)
    manager.assign_sequence(T1, 3, is_idle=True)
    manager.request_epoch_bump(T0)
    assert manager.assign_sequence(T1, 1, is_idle=False) == (ProducerIdAndEpoch(7, 0), 3)
    assert manager.assign_sequence(T1, 1, is_idle=True) == (ProducerIdAndEpoch(7, 1), 0)


def test_two_sequence_gaps_in_one_epoch_bump_it_once() -> None:
    manager = identified()
    for partition in (T0, T1):
        manager.assign_sequence(partition, 1, is_idle=True)
    manager.request_epoch_bump(T0)
    manager.request_epoch_bump(T1)
    assert manager.producer_id_and_epoch == ProducerIdAndEpoch(7, 1)


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    manager = identified(epoch=0x7FFF)
    manager.assign_sequence(T0, 1, is_idle=True)
    manager.request_epoch_bump(T0)
    assert manager.producer_id_and_epoch is None
