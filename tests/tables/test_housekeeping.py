"""Expired snapshots, merged files and removed files: readers and pipelines go on."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2

from odradek.model import PreconditionError, UnavailableError
from odradek.tables.contents import check_files, row_offsets
from odradek.tables.housekeeping import clean, compact, expire
from odradek.tables.location import TableLocation, parse_location
from odradek.tables.table import prepared_table, state_of
from tests.tables.conftest import COLUMNS, Hook, Scene

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections
NEVER_MS = 0
ALL_MS = 1 << 60


def files(scene: Scene, pattern: str) -> list[Path]:
    return sorted(Path(str(scene.location)).rglob(pattern))


def test_expiry_removes_old_snapshots_with_their_files_and_the_pipeline_goes_on(scene: Scene) -> None:
    for number in range(4):
        scene.write(number)
    assert expire(scene.location, keep=1, before_ms=NEVER_MS).snapshots == 0
    found = expire(scene.location, keep=1, before_ms=ALL_MS)
    assert (found.snapshots, found.files) == (3, 3)
    assert len(scene.table.snapshots()) == 1
    assert len(files(scene, "snap-*.avro")) == 1
    assert check_files(scene.location) == 4
    scene.write(4)
    assert scene.offsets() == list(range(15))


def test_compaction_keeps_rows_and_tags_and_the_pipeline_goes_on(scene: Scene) -> None:
    for number in range(4):
        scene.write(number)
    before = state_of(scene.table.metadata, "p")
    found = compact(scene.location)
    assert (found.before, found.after) == (4, 1)
    after = state_of(scene.table.metadata, "p")
    assert (after.tag, after.mark, after.is_in_main) == (before.tag, before.mark, True)
    assert after.main != before.main
    assert scene.table.current_snapshot().summary.operation.value == "replace"
    assert scene.offsets() == list(range(12))
    scene.write(4)
    assert scene.offsets() == list(range(15))

    expire(scene.location, keep=1, before_ms=ALL_MS)
    # The tag's snapshot is the newest one now; those before it had the four small files.
    assert check_files(scene.location) == 2
    assert len(files(scene, "*.parquet")) == 2
    scene.write(5)
    assert scene.offsets() == list(range(18))


def test_rows_without_an_offset_cannot_be_compared(scene: Scene) -> None:
    scene.write(0)
    scene.table.append(pa.Table.from_pylist([{"partition": 0, "key": "foreign"}], COLUMNS))
    with pytest.raises(PreconditionError, match="at least 1 rows without a partition or an offset"):
        row_offsets(scene.location, "orders")


def test_a_second_compaction_has_nothing_to_do(scene: Scene) -> None:
    for number in range(3):
        scene.write(number)
    compact(scene.location)
    snapshots = len(scene.table.snapshots())
    assert compact(scene.location).before == 0
    assert len(scene.table.snapshots()) == snapshots


def test_a_compaction_while_a_pipeline_appends_keeps_both(scene: Scene, on_commit) -> None:  # type: ignore[no-untyped-def]
    for number in range(3):
        scene.write(number)

    def after_a_batch(commit):  # type: ignore[no-untyped-def]
        scene.write(3)
        return commit()

    on_commit(after_a_batch)
    assert compact(scene.location).before == 3
    assert scene.offsets() == list(range(12))
    scene.write(4)
    assert scene.offsets() == list(range(15))


def test_files_that_no_snapshot_lists_are_removed_when_they_are_old(scene: Scene) -> None:
    scene.write(0)
    scene.files(1)  # of a driver that was killed
    known = set(files(scene, "*"))
    orphans = [file for file in files(scene, "*.parquet") if file.stat().st_nlink][:]
    assert len(orphans) == 2
    assert clean(scene.location, before_ms=NEVER_MS) == 0
    other = Path(str(scene.location), "data", "notes.txt")
    other.write_text("not ours")
    for file in known:
        os.utime(file, (1, 1))
    assert clean(scene.location, before_ms=10_000) == 1
    assert other.exists()
    assert check_files(scene.location) == 1
    scene.write(1)
    assert scene.offsets() == list(range(6))


def test_a_table_elsewhere_is_not_cleaned() -> None:
    with pytest.raises(PreconditionError, match=r"the files of a\.b are not in a local directory"):
        clean(TableLocation(table="a.b"), before_ms=ALL_MS)


def test_a_lost_file_is_found(scene: Scene) -> None:
    scene.write(0)
    scene.write(1)
    files(scene, "*.parquet")[0].unlink()
    with pytest.raises(PreconditionError, match="has lost 1 of its 2 files"):
        check_files(scene.location)


def test_expiry_keeps_all_snapshots_of_a_table_with_few(scene: Scene) -> None:
    for number in range(4):
        scene.write(number)
    assert expire(scene.location, keep=5, before_ms=ALL_MS).snapshots == 0
    assert len(scene.table.snapshots()) == 4


@pytest.mark.parametrize("through", ["link", "out/../out"])
def test_the_files_of_a_table_stay_however_its_directory_is_named(scene: Scene, tmp_path: Path, through: str) -> None:
    scene.write(0)
    scene.files(1)  # of a driver that was killed
    (tmp_path / "link").symlink_to("out")
    assert clean(parse_location({"path": f"{tmp_path}/{through}"}), before_ms=ALL_MS) == 1
    assert check_files(scene.location) == 1
    scene.write(1)
    assert scene.offsets() == list(range(6))


def test_expiry_leaves_metadata_files_to_the_commit(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.planned()
    scene.table.transaction().set_properties({"write.metadata.previous-versions-max": "1"}).commit_transaction()
    for number in range(3):
        scene.write(number)
    found = expire(scene.location, keep=1, before_ms=ALL_MS)
    assert (found.snapshots, found.files) == (2, 2), "the lists of manifests"
    assert not caplog.records


def test_a_directory_without_the_tables_metadata_is_not_cleaned(scene: Scene, tmp_path: Path) -> None:
    scene.write(0)
    (tmp_path / "copy" / "data").mkdir(parents=True)
    (tmp_path / "copy" / "data" / "a.parquet").touch()
    shutil.copy(f"{scene.location}/catalog.db", tmp_path / "copy")
    with pytest.raises(PreconditionError, match=r"the metadata of .*copy is not in its directory: .*/out/metadata/"):
        clean(TableLocation(path=str(tmp_path / "copy")), before_ms=ALL_MS)


def replace_partitions(scene: Scene) -> None:
    with scene.table.update_spec() as spec:
        spec.remove_field("partition")
        spec.add_identity("key")


def delete_rows(scene: Scene) -> None:
    scene.table.delete("offset = 1")


def add_deletes(scene: Scene) -> None:
    """Delete the first row by a file of positions, as Spark and Flink do, and pyiceberg does not."""
    table = scene.table
    kept = next(iter(table.scan().plan_files())).file
    path = f"{scene.location}/data/deletes.parquet"
    columns = [("file_path", pa.string(), b"2147483546"), ("pos", pa.int64(), b"2147483545")]
    schema = pa.schema([pa.field(name, kind, metadata={b"PARQUET:field_id": each}) for name, kind, each in columns])
    pq.write_table(pa.Table.from_pylist([{"file_path": kept.file_path, "pos": 0}], schema), path)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=path, file_format=FileFormat.PARQUET,
        partition=kept.partition, record_count=1, file_size_in_bytes=Path(path).stat().st_size,
    )  # fmt: skip
    deletes.spec_id = kept.spec_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestWriterV2, "content", lambda self: ManifestContent.DELETES)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(deletes)


@pytest.mark.parametrize("change", [replace_partitions, delete_rows, add_deletes])
def test_a_compaction_is_given_up_when_others_change_its_files(
    scene: Scene, on_commit: Callable[[Hook], None], change: Callable[[Scene], None]
) -> None:
    prepared_table(scene.location, COLUMNS, partition_by=["partition"])
    for number in range(3):
        scene.write(number)

    def after_a_change(commit: Callable[[], Any]) -> Any:
        change(scene)
        return commit()

    on_commit(after_a_change)
    with pytest.raises(UnavailableError, match="others have changed"):
        compact(scene.location)
    assert len(scene.offsets()) == (9 if change is replace_partitions else 8)
    assert scene.table.scan("key = 'k5'").to_arrow().num_rows == 1


def test_a_table_with_a_key_is_compacted_expired_and_cleaned_and_its_pipeline_goes_on(keyed_scene: Scene) -> None:
    scene = keyed_scene
    for number in range(6):
        scene.write(number)
    assert compact(scene.location).after == 1
    assert scene.offsets() == scene.after(6)
    scene.write(6)
    assert scene.offsets() == scene.after(7)
    assert expire(scene.location, keep=1, before_ms=ALL_MS).snapshots == 7
    assert len(files(scene, "*.parquet")) == check_files(scene.location) == 2
    scene.files(7)  # of a driver that was killed
    for file in files(scene, "*"):
        os.utime(file, (1, 1))
    assert clean(scene.location, before_ms=10_000) == 1
    scene.write(7)
    assert scene.offsets() == scene.after(8)


def test_a_compaction_of_files_that_an_upsert_replaced_meanwhile_changes_nothing(
    keyed_scene: Scene, on_commit: Callable[[Hook], None]
) -> None:
    scene = keyed_scene
    for number in range(3):
        scene.write(number)

    def after_a_batch(commit: Callable[[], Any]) -> Any:
        scene.write(3)
        return commit()

    on_commit(after_a_batch)
    with pytest.raises(UnavailableError, match="others have changed files of"):
        compact(scene.location)
    assert scene.offsets() == scene.after(4)


def test_an_upsert_of_files_that_were_compacted_meanwhile_is_made_anew(
    keyed_scene: Scene, on_commit: Callable[[Hook], None]
) -> None:
    scene = keyed_scene
    for number in range(3):
        scene.write(number)

    def after_a_compaction(commit: Callable[[], Any]) -> Any:
        assert compact(scene.location).before == 2
        return commit()

    on_commit(after_a_compaction)
    scene.write(3)
    assert scene.offsets() == scene.after(4)
