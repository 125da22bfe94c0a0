"""A transaction's first batch in a partition is appended only after its verification (KIP-890)."""

import pytest

from odradek.broker.log.validation import AppendInfo
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.control_records import ControlType
from tests.broker.log import scene
from tests.broker.log.scene import numbered
from tests.broker.log.transactional_writer import NOW_MS, Writer


@pytest.fixture
def writer() -> Writer:
    return Writer()


def batch(sequence: int = 0, *, epoch: int = 0) -> bytearray:
    return numbered(sequence, producer=9, epoch=epoch, transactional=True)


def append(writer: Writer, data: bytearray) -> AppendInfo:
    return writer.log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, transactional=True, needs_verification=True)


def refusal(writer: Writer, data: bytearray) -> ErrorCode:
    return scene.refusal(writer.log, data, transactional=True, needs_verification=True)


def test_the_first_batch_of_a_transaction_needs_a_verification_and_later_ones_do_not(
    writer: Writer,
) -> None:
    producers = writer.log.producers
    assert refusal(writer, batch()) == ErrorCode.invalid_txn_state
    verification = producers.begin_verification(9, 0, NOW_MS)
    assert refusal(writer, batch()) == ErrorCode.invalid_txn_state, "the coordinator has not answered yet"
    verification.is_verified = True
    assert producers.begin_verification(9, 0, NOW_MS) is None
    append(writer, batch())
    assert producers.begin_verification(9, 0, NOW_MS) is None
    append(writer, batch(1))
    assert append(writer, batch()).duplicate
    writer.end(9)
    assert append(writer, batch()).duplicate, "also when the transaction has ended"
    assert refusal(writer, batch(2)) == ErrorCode.invalid_txn_state
    assert producers.begin_verification(9, 0, NOW_MS) is not None


@pytest.mark.parametrize("type_", ControlType)
def test_a_marker_voids_a_verification_that_it_overtakes(writer: Writer, type_: ControlType) -> None:
    producers = writer.log.producers
    late = producers.begin_verification(9, 0, NOW_MS)
    writer.end(9, type_)
    again = producers.begin_verification(9, 0, NOW_MS)
    late.is_verified = True
    assert refusal(writer, batch()) == ErrorCode.invalid_txn_state
    again.is_verified = True
    append(writer, batch())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_marker_leaves_the_error_of_a_verification_that_it_overtakes(writer: Writer, *, is_late: bool) -> None:
    """The last transaction's marker has the epoch of the next one (KIP-890), and may come before the append."""
    producers = writer.log.producers
    writer.data(9)
    overtaken = producers.begin_verification(9, 1, NOW_MS)
    error = KafkaError(ErrorCode.concurrent_transactions, "the last transaction is being completed")
    if is_late:
        scene.end_transaction(writer.log, 9, ControlType.COMMIT, producer_epoch=1)
        overtaken.error = error
    else:
        overtaken.error = error
        scene.end_transaction(writer.log, 9, ControlType.COMMIT, producer_epoch=1)
    assert refusal(writer, batch(epoch=1)) == ErrorCode.concurrent_transactions
    again = producers.begin_verification(9, 1, NOW_MS)
    again.is_verified = True
    append(writer, batch(epoch=1))


def test_a_failed_verification_is_the_error_of_the_batch_and_of_those_behind_it(writer: Writer) -> None:
    producers = writer.log.producers
    failed = producers.begin_verification(9, 0, NOW_MS)
    failed.error = KafkaError(ErrorCode.not_enough_replicas, "not verified")
    assert refusal(writer, batch()) == ErrorCode.not_enough_replicas
    second = producers.begin_verification(9, 0, NOW_MS)
    second.is_verified = True
    assert refusal(writer, batch(1)) == ErrorCode.not_enough_replicas, "it would leave a gap"
    append(writer, batch())
    append(writer, batch(1))


def test_a_verification_outlives_a_truncation(writer: Writer) -> None:
    producers = writer.log.producers
    verified, failed = (producers.begin_verification(each, 0, NOW_MS) for each in (9, 8))
    writer.data(1)
    writer.log.write()
    writer.log.truncate_to(0)
    verified.is_verified, failed.error = True, KafkaError(ErrorCode.not_enough_replicas, "not verified")
    append(writer, batch())
    assert refusal(writer, numbered(0, producer=8, transactional=True)) == ErrorCode.not_enough_replicas


def test_a_verification_is_of_one_epoch_and_expires(writer: Writer) -> None:
    producers = writer.log.producers
    for epoch in (0, 1):
        verification = producers.begin_verification(9, epoch, NOW_MS)
        verification.is_verified = True
    assert refusal(writer, batch(epoch=0)) == ErrorCode.invalid_txn_state
    producers.expire(NOW_MS + 1001, 1000)
    assert refusal(writer, batch(epoch=1)) == ErrorCode.invalid_txn_state
    append_epoch_1 = producers.begin_verification(9, 1, NOW_MS)
    append_epoch_1.is_verified = True
    append(writer, batch(epoch=1))
    assert producers.begin_verification(9, 0, NOW_MS) is None, "its append is refused anyway"
    assert refusal(writer, batch(epoch=0)) == ErrorCode.invalid_producer_epoch


def test_a_marker_from_a_later_leader_voids_the_verification_of_a_former_one(writer: Writer) -> None:
    producers, later = writer.log.producers, Writer()
    verification = producers.begin_verification(9, 0, NOW_MS)
    verification.is_verified = True
    later.end(9)
    later.log.write()
    marker = later.log.read(0, 1000)
    assert writer.log.append_as_follower(bytearray(marker), now_ms=NOW_MS) == len(marker)
    assert refusal(writer, batch()) == ErrorCode.invalid_txn_state
