"""Unreadable and empty files are findings of their own; the rest is verified. Row M1."""

import pytest

from odradek.broker.log.inspection.verification import Verification
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import FOLDER, damages, data_directory, flip, put, segments
from tests.broker.log.transactional_writer import Writer, scripted


def refuse(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, method: str, path: str) -> None:
    """Let the disk not give one path."""
    plain = getattr(disk, method)

    def refusing(asked: str) -> object:
        if asked == path:
            raise PermissionError(13, "Permission denied", path)
        return plain(asked)

    monkeypatch.setattr(disk, method, refusing)


def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = data_directory()
    refuse(disk, monkeypatch, "list", FOLDER)
    verification = Verification(disk)
    found = [(each.path, each.reason) for each in verification.data_directory("/data")]
    assert found == [(FOLDER, "cannot be read: Permission denied")]
    assert (verification.totals.logs, verification.totals.batches) == (3, 30)


def test_a_lock_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = data_directory()
    refuse(disk, monkeypatch, "lock_holder", "/data/.lock")
    assert damages(disk) == [("/data/.lock", None)]


@pytest.mark.parametrize(("content", "byte"), [(None, None), (b"", 0), (b"version=1\nnode.id=1\n", 0)])
def test_meta_properties_without_ids_are_damage(content: bytes | None, byte: int | None) -> None:
    disk, _ = data_directory()
    path = "/data/meta.properties"
    disk.remove(path) if content is None else put(disk, path, content)
    assert damages(disk) == [(path, byte)]


def test_a_directory_in_the_place_of_the_mark_is_named() -> None:
    disk, _ = data_directory()
    disk.remove("/data/.kafka_cleanshutdown")
    disk.make_directories("/data/.kafka_cleanshutdown")
    assert damages(disk) == [("/data/.kafka_cleanshutdown", None)]


def test_a_batch_with_a_wrong_base_offset_is_the_only_finding() -> None:
    disk, _ = data_directory()
    path = f"{segments(disk)[0]}.log"
    flip(disk, path, 0, 0x41)  # the first byte of its base offset, which no checksum covers
    assert damages(disk) == [(path, 0)]


@pytest.mark.parametrize("harm", ["cut", "removed", "emptied"])
def test_transactions_are_not_checked_against_a_damaged_segment(harm: str) -> None:
    writer = Writer()
    scripted(writer)
    writer.log.close()
    writer.disk.replace_file("/data/.kafka_cleanshutdown", b"")
    first = f"/data/t-0/{writer.log.segments.bases[1]:020d}"
    if harm == "removed":
        writer.disk.remove(f"{first}.log")
    else:
        file = writer.disk.open(f"{first}.log")
        file.truncate(0 if harm == "emptied" else file.size() - 3)
    for name in writer.disk.list("/data/t-0"):
        if name.endswith(".snapshot"):
            writer.disk.remove(f"/data/t-0/{name}")
    accused = [each.path for each in Verification(writer.disk).partition_directory("/data/t-0") if each.is_damage]
    assert any(path.endswith(".log") for path in accused)
    assert [path for path in accused if path.endswith(".txnindex") and not path.startswith(first)] == []


def test_unreadable_aborted_transactions_are_not_reported_as_missing() -> None:
    writer = Writer()
    scripted(writer)
    writer.log.close()
    writer.disk.replace_file("/data/.kafka_cleanshutdown", b"")
    path = f"/data/t-0/{writer.files()[0]}"
    writer.disk.remove(path)
    writer.disk.make_directories(path)
    assert [each.path for each in Verification(writer.disk).partition_directory("/data/t-0")] == [path]
