"""Batches behind one that was refused for a passing reason get its error: their producer keeps its epoch (M1)."""

import pytest

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import assign_offset
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log import scene
from tests.broker.log.scene import NOW, numbered

NOT_LEADER = KafkaError(ErrorCode.not_leader_or_follower)
NO_REPLICAS = KafkaError(ErrorCode.not_enough_replicas, "t-0 has 1 in-sync replicas and needs 2")


def batch(sequence: int, *, epoch: int = 0) -> bytes:
    return bytes(numbered(sequence, epoch=epoch))


def append(log: Log, sequence: int, *, epoch: int = 0) -> int:
    return log.append_as_leader(batch(sequence, epoch=epoch), leader_epoch=0, now_ms=NOW).first_offset


def refusal(log: Log, sequence: int, *, epoch: int = 0) -> ErrorCode:
    return scene.refusal(log, batch(sequence, epoch=epoch))


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/data")
    return disk


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    return Log.open(disk, "/data/t-0", LogConfig(), now_ms=NOW)


def fail_to_write(disk: MemoryDisk, log: Log) -> None:
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(LogStorageError, match="No space left"):
        log.write()
    disk.capacity_bytes = None


@pytest.mark.parametrize("written", [0, 3])
def test_a_batch_behind_one_that_found_no_room_is_refused_like_it(disk: MemoryDisk, log: Log, written: int) -> None:
    for sequence in range(written):
        append(log, sequence)
    log.write()
    append(log, written)
    append(log, written + 1)
    fail_to_write(disk, log)
    for _ in range(2):
        assert refusal(log, written + 2) == ErrorCode.kafka_storage_error
        assert refusal(log, written + 1) == ErrorCode.kafka_storage_error
    for sequence in range(written, written + 4):
        assert append(log, sequence) == sequence
    assert refusal(log, written + 5) == ErrorCode.out_of_order_sequence_number


@pytest.mark.parametrize("written", [0, 3])
def test_a_batch_behind_one_that_lacked_replicas_is_refused_like_it(log: Log, written: int) -> None:
    for sequence in range(written):
        append(log, sequence)
    log.writer.refused.note_batch(batch(written), NO_REPLICAS, NOW)
    log.writer.refused.note_batch(batch(written + 1), NO_REPLICAS, NOW)
    assert refusal(log, written + 2) == ErrorCode.not_enough_replicas
    assert append(log, written) == written
    assert refusal(log, written + 2) == ErrorCode.not_enough_replicas, "behind written + 1"
    assert append(log, written + 1) == written + 1
    assert refusal(log, written + 3) == ErrorCode.out_of_order_sequence_number


def test_a_batch_of_another_epoch_is_judged_by_its_sequence_alone(log: Log) -> None:
    append(log, 0)
    log.writer.refused.note_batch(batch(1), NO_REPLICAS, NOW)
    assert refusal(log, 2, epoch=1) == ErrorCode.out_of_order_sequence_number
    assert append(log, 0, epoch=1) == 1


def test_a_refusal_ends_when_the_batch_was_replicated(log: Log) -> None:
    """This broker follows, and copies the batch that it refused when it led."""
    append(log, 0)
    log.writer.refused.note_batch(batch(1), NO_REPLICAS, NOW)
    copied = bytearray(batch(1))
    assign_offset(memoryview(copied), 0, 1, 0)
    log.append_as_follower(copied, now_ms=NOW)
    assert refusal(log, 3) == ErrorCode.out_of_order_sequence_number


def test_a_refusal_outlives_maintenance_and_ends_thirty_seconds_after_the_last_try(log: Log) -> None:
    append(log, 0)
    log.writer.refused.note_batch(batch(1), NO_REPLICAS, NOW - 25_000)
    log.expire_producers(NOW)
    assert refusal(log, 2) == ErrorCode.not_enough_replicas
    assert scene.refusal(log, batch(2), now_ms=NOW + 5_001) is ErrorCode.out_of_order_sequence_number
    log.expire_producers(NOW + 5_001)
    assert len(log.writer.refused) == 0


def test_a_batch_that_is_refused_again_and_again_does_not_prolong_the_refusal_before_it(log: Log) -> None:
    """The one before it was acknowledged by another leader, and lost in an unclean election."""
    append(log, 0)
    log.writer.refused.note_batch(batch(1), NOT_LEADER, NOW)
    for passed_ms in range(0, 30_000, 1000):
        assert scene.refusal(log, batch(2), now_ms=NOW + passed_ms) is ErrorCode.not_leader_or_follower
        log.writer.refused.note_batch(batch(2), NOT_LEADER, NOW + passed_ms)
    assert scene.refusal(log, batch(2), now_ms=NOW + 30_001) is ErrorCode.out_of_order_sequence_number


def test_all_refused_batches_of_a_producer_are_known(log: Log) -> None:
    """The due one is in the log by the time its leader leads: it came from the last leader."""
    append(log, 0)
    refused = RefusedBatches()
    for sequence in (1, 2, 3):
        refused.note_batch(batch(sequence), NOT_LEADER, NOW)
    copied = bytearray(batch(1))
    assign_offset(memoryview(copied), 0, 1, 0)
    log.append_as_follower(copied, now_ms=NOW)
    log.writer.refused.add_all(refused)
    assert refusal(log, 4) == ErrorCode.not_leader_or_follower
    assert [append(log, sequence) for sequence in (2, 3, 4)] == [2, 3, 4]


def test_an_unknown_producer_must_send_its_first_refused_batch_first(log: Log) -> None:
    log.writer.refused.note_batch(batch(5), NOT_LEADER, NOW)
    log.writer.refused.note_batch(batch(6), NOT_LEADER, NOW)
    assert refusal(log, 6) == refusal(log, 7) == ErrorCode.not_leader_or_follower
    assert [append(log, sequence) for sequence in (5, 6, 7)] == [0, 1, 2]


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("passes_ms", [0, 31_000])
def test_batches_behind_lost_ones_that_cannot_be_truncated_yet_get_the_same_error(
    disk: MemoryDisk, log: Log, written: int, passes_ms: int
) -> None:
    """The first batch is lost, and those behind it are refused before that is known of it."""
    if written:
        append(log, 0)
        log.write()
    append(log, written)
    job = log.writer.begin_write()
    log.segments.close()
    disk.most_open_files = 0
    with pytest.raises(LogStorageError, match="not begun"):
        log.writer.finish_write(job)
    log.segments.close()
    assert refusal(log, written + 1) == ErrorCode.kafka_storage_error
    assert refusal(log, written + 2) == ErrorCode.kafka_storage_error
    disk.most_open_files = None
    later_ms = NOW + passes_ms
    for sequence in (written + 1, written + 2, written + 3):
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(batch(sequence), leader_epoch=0, now_ms=later_ms)
        assert caught.value.code is ErrorCode.kafka_storage_error, "behind the one that is lost"
    for sequence in range(written, written + 4):
        assert log.append_as_leader(batch(sequence), leader_epoch=0, now_ms=later_ms).first_offset == sequence


def test_a_batch_of_an_unknown_producer_waits_for_refused_batches_before_it_only(log: Log) -> None:
    """Its earlier batches were refused by another broker."""
    log.writer.refused.note_batch(batch(2), NOT_LEADER, NOW)
    assert refusal(log, 3) == ErrorCode.not_leader_or_follower
    assert [append(log, sequence) for sequence in (0, 1, 2, 3)] == [0, 1, 2, 3]


def test_refusals_from_before_this_broker_led_join_those_of_its_log(log: Log) -> None:
    log.writer.refused.note_batch(batch(0), NO_REPLICAS, NOW)
    refused = RefusedBatches()
    refused.note_batch(batch(1), NOT_LEADER, NOW)
    log.writer.refused.add_all(refused)
    assert refusal(log, 1) == refusal(log, 2) == ErrorCode.not_leader_or_follower
    assert [append(log, sequence) for sequence in (0, 1, 2)] == [0, 1, 2]


def test_an_older_epoch_does_not_replace_the_refusals_of_a_newer_one(log: Log) -> None:
    append(log, 0, epoch=5)
    log.writer.refused.note_batch(batch(1, epoch=5), NO_REPLICAS, NOW)
    log.writer.refused.note_batch(batch(7, epoch=4), NO_REPLICAS, NOW)
    assert refusal(log, 2, epoch=5) == ErrorCode.not_enough_replicas


@pytest.mark.parametrize("start", [2**31 - 2, 0])
def test_sequences_that_start_again_at_zero_keep_their_order(log: Log, start: int) -> None:
    first, second, third = ((start + each) % 2**31 for each in range(3))
    log.writer.refused.note_batch(batch(second), NOT_LEADER, NOW)
    log.writer.refused.note_batch(batch(first), NOT_LEADER, NOW)
    assert refusal(log, third) == refusal(log, second) == ErrorCode.not_leader_or_follower
    assert [append(log, sequence) for sequence in (first, second, third)] == [0, 1, 2]


def test_a_producer_has_few_refused_batches_and_a_partition_few_producers() -> None:
    refused = RefusedBatches(most_producers=2)
    for producer_id in range(3):
        for sequence in range(100):
            refused.note(producer_id, 0, sequence, NO_REPLICAS, NOW)
    assert len(refused) == 2
    assert all(len(each.until_ms) == 8 for each in refused._refusals.values())
