"""`odradek log verify` holds the index of aborted transactions against the log (M1)."""

from collections.abc import Callable

import pytest

from odradek.broker.log.checkpoints import checkpoint_file
from odradek.broker.log.checkpoints.checkpoint_file import encode_offsets
from odradek.broker.log.inspection.findings import Finding
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.segments.transaction_index import ENTRY, AbortedTransaction
from odradek.model import TopicPartition
from tests.broker.log.transactional_writer import DIRECTORY, Writer, scripted

FIRST = f"{DIRECTORY}/{0:020d}"


def written(*, closed: bool = True) -> tuple[Writer, list[AbortedTransaction]]:
    writer = Writer()
    expected = scripted(writer)
    writer.data(4)
    writer.settle()
    if closed:
        writer.log.close()
        writer.disk.replace_file("/data/.kafka_cleanshutdown", b"{}")
    return writer, expected


def found(writer: Writer) -> list[Finding]:
    return [each for each in Verification(writer.disk).partition_directory(DIRECTORY) if "closed" not in each.reason]


def entry(*fields: int) -> bytes:
    return ENTRY.pack(0, *fields)


def test_a_correct_transaction_index_has_no_findings() -> None:
    writer, expected = written()
    assert len(writer.files()) > 2
    assert found(writer) == []
    stored = b"".join(writer.disk.read_file(f"{DIRECTORY}/{name}") for name in writer.files())
    assert stored == b"".join(entry(*each) for each in expected)


WRONG: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "lacks the last": (lambda data: data[:-34], -34, "lacks AbortedTransaction"),
    "is empty": (lambda data: b"", 0, "lacks AbortedTransaction"),
    "is cut": (lambda data: data[:-1], -34, "ends with 33 bytes"),
    "is of another version": (lambda data: b"\0\1" + data[2:], 0, "version 1"),
    "has another producer": (lambda data: data[:2] + b"\1" + data[3:], 0, "where the log has"),
    "has another beginning": (lambda data: data[:17] + b"\1" + data[18:], 0, "where the log has"),
    "has another stable offset": (lambda data: data[:33] + b"\1" + data[34:], 0, "where the log has"),
    "ends before it begins": (lambda data: data[:-34] + entry(1, 9, 8, 9), -34, "from offset 9 to 8"),
    "goes back": (lambda data: data + data[:34], 0, "after one that ends at"),
    "is before the segment": (lambda data: entry(1, -2, -1, 0) + data, 0, "outside the segment"),
    "is beyond the segment": (lambda data: data + entry(1, 0, 10**6, 10**6), 0, "where no marker aborts it"),
    "has one that was committed": (lambda data: data + entry(3, 4, 1000, 9), 0, "where no marker aborts it"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("number", [0, -1])
def test_a_wrong_index_is_named(what: str, number: int) -> None:
    writer, _ = written()
    path = f"{DIRECTORY}/{writer.files()[number]}"
    good = writer.disk.read_file(path)
    change, byte, words = WRONG[what]
    bad = change(good)
    writer.disk.replace_file(path, bad)
    (finding,) = found(writer)
    assert finding.path == path
    assert words in finding.reason
    place = byte if byte >= 0 else len(good) + byte
    if "goes back" in what or "where no marker" in words:
        place = len(good)
    assert finding.byte == place


def test_an_index_that_is_missing_is_named() -> None:
    writer, _ = written()
    path = f"{DIRECTORY}/{writer.files()[0]}"
    writer.disk.remove(path)
    (finding,) = found(writer)
    assert (finding.path, finding.byte, finding.is_damage) == (path, 0, True)
    assert finding.reason.startswith("lacks AbortedTransaction")


def test_files_that_will_be_rewritten_are_not_damage() -> None:
    writer, _ = written(closed=False)
    writer.disk.kill()
    assert [each for each in found(writer) if each.is_damage] == []
    writer.log = writer.opened()
    writer.log.flush()
    path = f"{DIRECTORY}/{writer.files()[0]}"
    writer.disk.replace_file(path, b"\0\1" * 17)
    (finding,) = found(writer)
    assert (finding.path, finding.is_damage) == (path, False)
    assert "will be rewritten" in finding.reason


def test_after_retention_open_transactions_come_from_a_snapshot() -> None:
    writer, _ = written()
    first = writer.log.segments.bases[1]
    for name in writer.disk.list(DIRECTORY):
        if name[:20].isdecimal() and int(name[:20]) < first:
            writer.disk.remove(f"{DIRECTORY}/{name}")
    assert found(writer) == []
    path = f"{DIRECTORY}/{writer.files()[0]}"
    good = writer.disk.read_file(path)
    writer.disk.replace_file(path, good[:17] + b"\1" + good[18:])
    assert [each.path for each in found(writer)] == [path]


def test_without_a_snapshot_an_entry_has_to_belong_to_a_marker() -> None:
    writer, _ = written()
    first = writer.log.segments.bases[1]
    for name in writer.disk.list(DIRECTORY):
        if name[:20].isdecimal() and (int(name[:20]) < first or name.endswith(".snapshot")):
            writer.disk.remove(f"{DIRECTORY}/{name}")
    path = f"{DIRECTORY}/{writer.files()[0]}"
    good = writer.disk.read_file(path)
    writer.disk.replace_file(path, good[:17] + b"\1" + good[18:])
    writer.disk.replace_file(path, good)
    assert found(writer) == []
    writer.disk.replace_file(path, good[:2] + b"\1" + good[3:])
    assert [each.path for each in found(writer)] == [path]


def test_compaction_may_have_removed_the_beginning_of_a_transaction() -> None:
    writer, _ = written()
    path = f"{DIRECTORY}/{writer.files()[0]}"
    good = writer.disk.read_file(path)
    writer.disk.replace_file(path, good[:17] + b"\1" + good[18:])
    assert len(found(writer)) == 1
    cleaned = {TopicPartition("t", 0): writer.log.segments.bases[-1]}
    writer.disk.replace_file(f"/data/{checkpoint_file.CLEANER_OFFSETS}", encode_offsets(cleaned))
    assert found(writer) == []
