"""Which leader wrote what: the rules of OffsetForLeaderEpoch, and truncations at both ends. KIP-101, KIP-279."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from odradek.broker.log.checkpoints.leader_epoch_cache import EpochStart, LeaderEpochs
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000


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


def test_truncation_removes_epochs_but_not_the_current_one_at_the_start() -> None:
    epochs = epochs_of((2, 10), (3, 20), (7, 35))
    epochs.truncate_from_start(25)
    assert epochs.entries == [EpochStart(3, 25), EpochStart(7, 35)]
    epochs.truncate_from_end(35)
    assert (epochs.entries, epochs.latest) == ([EpochStart(3, 25)], 3)
    epochs.truncate_from_end(0)
    assert (epochs.entries, epochs.latest) == ([], -1)


def test_truncation_at_the_start_of_an_epoch_removes_the_earlier_ones() -> None:
    epochs = epochs_of((2, 10), (3, 20), (7, 35))
    epochs.truncate_from_start(20)
    assert (epochs.entries, epochs.is_dirty) == ([EpochStart(3, 20), EpochStart(7, 35)], True)


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


PATH = "/data/t-0/leader-epoch-checkpoint"


def closed(*epochs: int) -> MemoryDisk:
    """A log that was closed, with two records of each of these epochs; one segment for every two of them."""
    disk = MemoryDisk()
    log = Log.open(disk, "/data/t-0", LogConfig(segment_bytes=300, index_interval_bytes=0), now_ms=NOW)
    for epoch in epochs:
        for _ in range(2):
            log.append_as_leader(encode_batch([(NOW, b"k", b"v" * 20, ())]), leader_epoch=epoch, now_ms=NOW)
    log.close()
    return disk


def reopened(disk: MemoryDisk, log_start_offset: int = 0) -> Log:
    config = LogConfig(segment_bytes=300, index_interval_bytes=0)
    return Log.open(disk, "/data/t-0", config, now_ms=NOW, clean=True, log_start_offset=log_start_offset)


@pytest.mark.parametrize(
    "said", [b"0\n2\n0 0\n3 2\n", b"0\n3\n0 0\n3 2\n6 8\n", b"0\n0\n", b"0\n1\n9 0\n", b"0\n2\n0 0\n4 4\n"]
)
def test_a_file_without_the_last_epoch_is_rebuilt_after_a_clean_shutdown(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = closed(0, 3, 4, 6)
    whole = disk.read_file(PATH)
    disk.replace_file(PATH, said)
    log = reopened(disk)
    assert log.epochs.entries == [(0, 0), (3, 2), (4, 4), (6, 6)]
    assert "lacks its last leader epoch" in caplog.text
    log.close()
    assert disk.read_file(PATH) == whole
    caplog.clear()
    reopened(disk)
    assert not caplog.text


def test_a_file_with_the_last_epoch_is_used_and_deleted_records_need_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = closed(0, 3, 4, 6)
    disk.replace_file(PATH, b"0\n2\n0 0\n6 6\n")
    assert reopened(disk).epochs.entries == [(0, 0), (6, 6)]
    log = reopened(disk)
    log.advance_log_start_offset(8)
    log.close()
    assert reopened(disk, log_start_offset=8).epochs.entries == []
    assert not caplog.text


def test_the_last_record_may_be_in_a_finished_segment(caplog: pytest.LogCaptureFixture) -> None:
    disk = closed(0, 3)
    log = reopened(disk)
    config = replace(log.config, cleanup_policy=("compact",), max_compaction_lag_ms=1)
    log.update_config(config)
    log.roll_for_compaction(NOW + 10)
    assert log.segments.bases[-1] == log.log_end_offset == 4
    log.close()
    disk.replace_file(PATH, b"0\n1\n0 0\n")
    log = reopened(disk)
    assert log.epochs.entries == [(0, 0), (3, 2)]
    assert (log.log_end_offset, log.segments.bases[-1]) == (4, 4)
    assert "lacks its last leader epoch" in caplog.text
