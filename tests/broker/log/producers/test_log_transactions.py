"""A log with transactions in it: what is aborted is found, outlives restarts, and goes with its segment. Row M1."""

import errno
import random
import struct

import pytest

from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.transaction_index import ENTRY, AbortedTransaction, TransactionIndex
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log import scene
from tests.broker.log.scene import contents
from tests.broker.log.transactional_writer import DIRECTORY, NOW_MS, Writer, scripted


def test_only_segments_with_an_aborted_transaction_have_an_index_of_them() -> None:
    writer = Writer(config=LogConfig())
    writer.data(1)
    writer.end(1, ControlType.COMMIT)
    writer.log.flush()
    assert writer.files() == []
    writer.data(1)
    writer.end(1)
    writer.log.flush()
    assert writer.files() == [f"{0:020d}.txnindex"]
    assert writer.disk.read_file(f"{DIRECTORY}/{0:020d}.txnindex") == struct.pack(">hqqqq", 0, 1, 2, 3, 4)


@pytest.mark.parametrize("how", ["goes on", "closed", "killed"])
def test_aborted_transactions_are_found_in_every_segment(how: str) -> None:
    writer = Writer()
    expected = scripted(writer)
    if how != "goes on":
        writer.restart(clean=how == "closed")
    assert writer.aborted() == expected
    for start in range(0, writer.log.written_offset, 3):
        for end in range(start + 1, writer.log.written_offset + 1, 4):
            found = writer.log.aborted_transactions(start, end)
            wanted = [each for each in expected if each.last_offset >= start and each.first_offset < end]
            assert found == wanted, (start, end)


def test_a_reader_needs_no_segment_behind_the_last_stable_offset_that_covers_it() -> None:
    writer = Writer()
    scripted(writer)
    segment = writer.log.segments[0]
    assert segment.aborted is not None
    found, is_all = segment.aborted.collect(0, 2)
    assert [each.producer_id for each in found] == [1]
    assert is_all
    assert segment.aborted.collect(0, 10_000)[1] is False


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_survives_a_restart(*, clean: bool) -> None:
    writer = Writer()
    writer.data(5, transactional=False)
    writer.data(1)
    writer.data(2)
    for _ in range(12):
        writer.data(5, transactional=False)
    writer.end(2, ControlType.COMMIT)
    writer.settle()
    writer.restart(clean=clean)
    writer.settle()
    assert writer.log.first_unstable_offset == 1
    assert [key for key, entry in writer.log.producers.entries.items() if entry.transaction_start >= 0] == [1]
    with pytest.raises(KafkaError, check=lambda error: error.code == ErrorCode.invalid_txn_state):
        writer.data(1, transactional=False)
    writer.sequences[1] -= 1
    writer.data(1)
    last = writer.end(1)
    writer.settle()
    assert writer.aborted() == [AbortedTransaction(1, 1, last, last + 1)]
    assert writer.log.first_unstable_offset is None


def test_truncation_removes_aborted_transactions() -> None:
    writer = Writer()
    expected = scripted(writer)
    for offset in range(writer.log.log_end_offset - 1, 0, -1):
        batches = contents(writer.log)
        if offset not in batches:
            continue
        writer.log.truncate_to(offset)
        assert writer.aborted() == [each for each in expected if each.last_offset < offset]
        if offset % 5 == 0:
            writer.restart(clean=True)
            assert writer.aborted() == [each for each in expected if each.last_offset < offset]
    writer.log.truncate_to(0)
    assert all(name == f"{0:020d}.txnindex" for name in writer.files())


def test_after_a_truncation_a_transaction_is_open_again() -> None:
    writer = Writer()
    writer.data(1)
    last = writer.end(1)
    writer.settle()
    assert writer.log.first_unstable_offset is None
    writer.log.truncate_to(last)
    assert writer.log.first_unstable_offset == 0
    writer.end(1, ControlType.COMMIT)
    writer.settle()
    assert writer.log.first_unstable_offset is None
    assert writer.aborted() == []


def test_retention_deletes_the_index_with_its_segment() -> None:
    writer = Writer(config=LogConfig(segment_bytes=500, retention_bytes=600, file_delete_delay_ms=0))
    expected = scripted(writer)
    writer.log.flush()
    before = writer.files()
    writer.log.delete_old_segments(NOW_MS)
    start = writer.log.log_start_offset
    assert start > 0
    for path in writer.log.take_deleted_files(NOW_MS + 1):
        writer.disk.remove(path)
    assert writer.files() == [name for name in before if int(name[:20]) >= start]
    assert len(writer.files()) < len(before)
    assert writer.log.aborted_transactions(start, writer.log.written_offset) == [
        each for each in expected if each.last_offset >= start
    ]
    assert not [name for name in writer.disk.list(DIRECTORY) if "deleted" in name]


def test_the_unstable_offset_is_never_before_the_logs_start() -> None:
    writer = Writer()
    writer.data(1)
    for _ in range(20):
        writer.data(5, transactional=False)
    writer.settle()
    writer.log.advance_log_start_offset(10)
    assert writer.log.first_unstable_offset == 10
    last = writer.end(1)
    writer.settle()
    assert writer.log.first_unstable_offset is None
    assert writer.log.aborted_transactions(10, last + 1) == [AbortedTransaction(1, 0, last, last + 1)]


DAMAGE = {
    "cut": lambda data: data[:-1],
    "of another version": lambda data: b"\0\1" + data[2:],
    "beyond the segment": lambda data: data[: -ENTRY.size] + ENTRY.pack(0, 1, 0, 10**6, 10**6),
    "before the segment": lambda data: ENTRY.pack(0, 1, 0, -1, 0) + data,
    "out of order": lambda data: data + data[: ENTRY.size],
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("number", [0, -1])
def test_a_damaged_transaction_index_is_rebuilt(what: str, number: int) -> None:
    writer = Writer()
    expected = scripted(writer)
    writer.log.close()
    path = f"{DIRECTORY}/{writer.files()[number]}"
    good = writer.disk.read_file(path)
    writer.disk.replace_file(path, DAMAGE[what](good))
    writer.log = writer.opened(clean=True)
    assert writer.aborted() == expected
    writer.restart(clean=True)
    assert writer.aborted() == expected
    assert writer.disk.read_file(path) == good


def test_an_index_without_its_log_is_removed() -> None:
    writer = Writer()
    scripted(writer)
    writer.log.close()
    stray = f"{DIRECTORY}/{999999:020d}.txnindex"
    writer.disk.replace_file(stray, b"")
    writer.log = writer.opened(clean=True)
    assert not writer.disk.exists(stray)


def test_after_a_power_failure_the_transaction_index_matches_the_log() -> None:
    for seed in range(60):
        writer = Writer(MemoryDisk(random.Random(seed)))
        for _ in range(seed % 5):
            writer.data(4)
            writer.end(4)
        writer.log.flush()
        scripted(writer)
        known = writer.aborted()
        point = writer.log.writer.recovery_point
        writer.disk.cut_power(Survival.ANY)
        writer.log = writer.opened(recovery_point=point)
        end = writer.log.log_end_offset
        assert writer.aborted() == [each for each in known if each.last_offset < end]


def test_a_write_that_fails_ends_no_transaction() -> None:
    writer = Writer()
    writer.data(1)
    writer.settle()
    writer.disk.fail_next("append", errno.ENOSPC)
    writer.end(1)
    with pytest.raises(KafkaError, check=lambda error: error.code == ErrorCode.kafka_storage_error):
        writer.log.write()
    assert writer.log.first_unstable_offset == 0
    assert writer.aborted() == []
    last = writer.end(1)
    writer.settle()
    assert writer.aborted() == [AbortedTransaction(1, 0, last, last + 1)]


def test_a_roll_begins_with_a_snapshot_of_what_is_open() -> None:
    writer = Writer()
    writer.data(1)
    while len(writer.log.segments.bases) < 4:
        writer.data(5, transactional=False)
    writer.settle()
    writer.log.flush()
    for offset in writer.log.segments.bases[1:]:
        data = writer.disk.read_file(f"{DIRECTORY}/{offset:020d}.snapshot")
        starts = {item[0]: item[-1] for item in struct.iter_unpack(">qhiqiqiq", data[10:])}
        assert starts == {1: 0, 5: -1}


def test_clients_can_append_only_verified_transactional_batches() -> None:
    writer = Writer()

    def refusal(*, producer: int = 1, control: bool = False, transactional: bool = True) -> ErrorCode:
        numbers = {"producer_id": producer, "producer_epoch": min(producer, 0), "base_sequence": min(producer, 0)}
        batch = encode_batch([(NOW_MS, None, b"v", ())], is_transactional=True, is_control=control, **numbers)
        return scene.refusal(writer.log, batch, transactional=transactional)

    assert refusal(transactional=False) == ErrorCode.invalid_txn_state
    assert refusal(control=True) == ErrorCode.invalid_record
    assert refusal(producer=-1) == ErrorCode.invalid_record
    assert writer.log.log_end_offset == 0


def test_an_index_of_many_pages_is_searched_where_it_is() -> None:
    disk = MemoryDisk()
    disk.make_directories("/d")
    index = TransactionIndex(FilePool(disk).file("/d/x"))
    entries = [AbortedTransaction(number % 7, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(1500)]
    for number, entry in enumerate(entries):
        index.append(entry)
        if number == 1300:
            index.entries.flush()
    assert index.collect(0, 10**9) == (entries, False)
    assert index.collect(5006, 5016) == ([entries[501]], True)
    assert index.collect(5005, 5010) == ([entries[500]], True)
    index.truncate(5005)
    assert index.collect(0, 10**9) == (entries[:500], False)
