"""Planted faults of brokers, one at a time, each of which the checks of transactions find within a few seeds."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from transactional_world import BrokenPromiseError, play_transactional_faults

from odradek.broker.replication.partition import Partition
from odradek.broker.replication.reading import partition_reader
from odradek.broker.transactions.marker_writes import MarkerWriter
from odradek.groups.offsets import Offsets
from odradek.transactions import transaction_machine
from odradek.transactions.transaction import TransactionMetadata

FOUND_WITHIN: Final = 3
"""Seeds in which each planted fault is found."""
Plant = Callable[[pytest.MonkeyPatch], None]


def consumers_read_beyond_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def consumers_are_not_told_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_reader, "_aborted", lambda *_: ())


def one_partition_gets_the_opposite_marker(patch: pytest.MonkeyPatch) -> None:
    begin = MarkerWriter._begin

    def flipped(writer: Any, writes: Any, marker: Any, place: Any, now_ms: int) -> None:
        if (place.topic, place.partition) == ("t", 1):
            marker = type(marker)(**{**_fields(marker), "is_commit": not marker.is_commit})
        begin(writer, writes, marker, place, now_ms)

    patch.setattr(MarkerWriter, "_begin", flipped)


def producers_are_not_fenced_by_their_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_machine, "_check_producer", lambda known, producer: None)


def offsets_are_visible_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    put = Offsets.put

    def apply(offsets: Any, producer_id: int, *rest: Any) -> None:
        put(offsets, *rest)

    patch.setattr(Offsets, "put_transactional", apply)


def offsets_of_aborted_transactions_are_committed(patch: pytest.MonkeyPatch) -> None:
    end = Offsets.end_transaction
    patch.setattr(
        Offsets, "end_transaction", lambda offsets, producer_id, *, committed: end(offsets, producer_id, committed=True)
    )


def a_repeated_end_succeeds_with_the_other_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_machine, "_refuse_state", lambda known, request: None)


def commits_are_answered_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The transaction is recorded as aborted."""
    ended = TransactionMetadata.ended
    patch.setattr(
        TransactionMetadata, "ended", lambda known, *, is_commit, **rest: ended(known, is_commit=False, **rest)
    )


PLANTS: Final[list[Plant]] = [
    consumers_read_beyond_the_last_stable_offset,
    consumers_are_not_told_of_aborted_transactions,
    one_partition_gets_the_opposite_marker,
    producers_are_not_fenced_by_their_epoch,
    offsets_are_visible_before_the_marker,
    offsets_of_aborted_transactions_are_committed,
    a_repeated_end_succeeds_with_the_other_result,
    commits_are_answered_and_forgotten,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_transactions_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(is_found(seed) for seed in range(FOUND_WITHIN))


def is_found(seed: int) -> bool:
    try:
        play_transactional_faults(seed)
    except BrokenPromiseError:
        return True
    return False


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
