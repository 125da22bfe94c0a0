"""Which leader wrote what: the rules of OffsetForLeaderEpoch, and truncations at both ends. KIP-101, KIP-279."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.leader_epochs import EpochStart, LeaderEpochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries])


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = epochs_of((2, 10), (3, 20), (7, 35))
    assert epochs.end_offset(2, 50) == (2, 20)
    assert epochs.end_offset(3, 50) == (3, 35)
    assert epochs.end_offset(7, 50) == (7, 50), "the latest ends with the log"


def test_an_unknown_epoch_is_answered_with_the_one_before_it() -> None:
    epochs = epochs_of((2, 10), (3, 20), (7, 35))
    assert epochs.end_offset(5, 50) == (3, 35)
    assert epochs.end_offset(1, 50) == (1, 10), "earlier than all"
    assert epochs.end_offset(8, 50) == (-1, -1), "later than all"
    assert epochs.end_offset(-1, 50) == (-1, -1)
    assert LeaderEpochs().end_offset(0, 0) == (-1, -1)


def test_an_old_or_equal_epoch_changes_nothing() -> None:
    epochs = epochs_of((2, 10))
    epochs.assign(2, 15)
    epochs.assign(1, 15)
    assert (epochs.entries, epochs.is_dirty) == ([EpochStart(2, 10)], False)


def test_an_epoch_without_records_gives_way_to_the_next() -> None:
    epochs = epochs_of((2, 10), (3, 20))
    epochs.assign(4, 20)
    assert epochs.entries == [EpochStart(2, 10), EpochStart(4, 20)]
    assert (epochs.latest, epochs.is_dirty) == (4, True)


def test_truncation_forgets_at_the_end_and_keeps_what_is_in_force_at_the_start() -> None:
    epochs = epochs_of((2, 10), (3, 20), (7, 35))
    epochs.truncate_from_start(25)
    assert epochs.entries == [EpochStart(3, 25), EpochStart(7, 35)]
    epochs.truncate_from_end(35)
    assert (epochs.entries, epochs.latest) == ([EpochStart(3, 25)], 3)
    epochs.truncate_from_end(0)
    assert (epochs.entries, epochs.latest) == ([], -1)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=30), st.integers(0, 200))
def test_the_epoch_of_an_offset_is_that_of_the_leader_that_wrote_it(leaders: list[tuple[int, int]], start: int) -> None:
    epochs = LeaderEpochs()
    written: list[int] = []
    for epoch, count in leaders:
        effective = max(epoch, epochs.latest)
        epochs.assign(effective, len(written))
        written += [effective] * count
    assert [epochs.epoch_at(offset) for offset in range(len(written))] == written
    if written:
        start %= len(written)
        epochs.truncate_from_start(start)
        assert [epochs.epoch_at(offset) for offset in range(start, len(written))] == written[start:]
