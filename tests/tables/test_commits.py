"""Commits to real tables of pyiceberg in a SQLite catalog (X4): crashes between all steps, lost answers, races."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.model import OdradekError, PreconditionError, StorageError, UnavailableError
from odradek.tables.machine.committing import Batch
from odradek.tables.machine.marks import Mark
from odradek.tables.table import accept_next, commit_batch, state_of
from tests.tables.conftest import Hook, Scene

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections


@pytest.fixture(params=["append", "upsert"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, has_key=request.param == "upsert")


def test_each_batch_is_a_snapshot_that_main_and_the_tag_share(scene: Scene) -> None:
    for number in range(3):
        scene.write(number)
    refs = scene.table.metadata.refs
    assert refs["main"].snapshot_id == refs["odradek.p"].snapshot_id
    assert scene.offsets() == scene.after(3)
    mark = state_of(scene.table.metadata, "p").mark
    assert mark == scene.batch(2).mark


def test_a_batch_without_rows_moves_the_progress(scene: Scene) -> None:
    scene.write(0)
    planned = scene.planned()
    commit_batch(scene.location, scene.batch(1), planned, [])
    state = state_of(scene.table.metadata, "p")
    assert state.mark is not None
    assert state.mark.batch == 1
    assert scene.offsets() == [0, 1, 2]


OF_OTHERS = ("catalog.db", "version-hint.text")
"""Files that SQLite syncs, and that no reader needs."""


def test_every_file_is_on_the_disk_before_the_catalog_lists_it(
    scene: Scene, on_commit: Callable[[Hook], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, synced, unsynced = os.fsync, set[str](), set[str]()
    monkeypatch.setattr(os, "fsync", lambda number: (synced.add(os.readlink(f"/proc/self/fd/{number}")), sync(number)))
    directory = Path(str(scene.location))
    scene.prepare(partition_by=["partition", "key"])

    def look(commit: Callable[[], Any]) -> Any:
        made = [each for each in (directory, *directory.rglob("*")) if each.name not in OF_OTHERS]
        unsynced.update({str(each) for each in made if each.is_file()} - synced)
        unsynced.update({str(each.parent) for each in made} - synced)
        return commit()

    on_commit(look)
    scene.write(0)
    assert unsynced == set()
    suffixes = {"".join(Path(path).suffixes) for path in synced}
    assert {".parquet", ".avro", ".metadata.json"} <= suffixes
    assert {f"{directory}/{name}" for name in ("data", "data/partition=0", "metadata")} <= synced


STEPS: dict[str, Callable[[Scene, Any], None]] = {
    "after it was planned": lambda scene, on_commit: void(scene.planned()),
    "after its files": lambda scene, on_commit: void(scene.files(1)),
    "before its commit": lambda scene, on_commit: dying(scene, on_commit, lambda commit: die()),
    "after its commit": lambda scene, on_commit: dying(scene, on_commit, lambda commit: die(commit())),
    "before Spark's commit log": lambda scene, on_commit: void(scene.write(1)),
}


class KilledError(BaseException):
    """The end of a driver."""


def void(_: object) -> None:
    pass


def die(_: object = None) -> None:
    raise KilledError


def dying(scene: Scene, on_commit: Callable[[Hook], None], hook: Hook) -> None:
    on_commit(hook)
    with pytest.raises(KilledError):
        scene.write(1)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("others", ["", "append", "expire"])
def test_a_batch_whose_driver_is_killed_is_in_the_table_once(
    scene: Scene, on_commit: Callable[[Hook], None], step: str, others: str
) -> None:
    scene.write(0)
    STEPS[step](scene, on_commit)
    if others == "append":
        scene.append_row()
    if others == "expire":
        expire = scene.table.maintenance.expire_snapshots()
        expire.by_ids(
            [each.snapshot_id for each in scene.table.snapshots() if not is_referred_to(scene, each)]
        ).commit()
    scene.write(1)
    scene.write(2)
    assert scene.offsets() == [*scene.after(3), *([100] if others == "append" else [])]


def is_referred_to(scene: Scene, snapshot: Any) -> bool:
    return snapshot.snapshot_id in {each.snapshot_id for each in scene.table.metadata.refs.values()}


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_whose_answer_is_lost_is_in_the_table_once(
    scene: Scene, on_commit: Callable[[Hook], None], is_applied: bool
) -> None:
    def lose(commit: Callable[[], Any]) -> None:
        if is_applied:
            commit()
        raise TimeoutError("the catalog did not answer")

    scene.write(0)
    on_commit(lose)
    scene.write(1)
    assert scene.offsets() == scene.after(2)


def test_a_lost_answer_is_logged_without_the_catalog_s_password(
    scene: Scene, on_commit: Callable[[Hook], None], caplog: pytest.LogCaptureFixture
) -> None:
    def lose(commit: Callable[[], Any]) -> None:
        raise TimeoutError("https://me:geheim@catalog/v1 did not answer")

    scene.write(0)
    on_commit(lose)
    scene.write(1)
    assert "The outcome of a commit" in caplog.text
    assert "https://…@catalog/v1 did not answer" in caplog.text
    assert "geheim" not in caplog.text


def test_a_commit_that_arrives_after_its_answer_was_given_up_is_refused(
    scene: Scene, on_commit: Callable[[Hook], None]
) -> None:
    late: list[Callable[[], Any]] = []

    def hold(commit: Callable[[], Any]) -> None:
        late.append(commit)
        raise TimeoutError("the catalog did not answer")

    scene.write(0)
    on_commit(hold)
    scene.write(1)
    from pyiceberg.exceptions import CommitFailedException

    with pytest.raises(CommitFailedException):
        late[0]()
    assert scene.offsets() == scene.after(2)


def test_foreign_appends_and_a_commit_on_top_of_them(scene: Scene, on_commit: Callable[[Hook], None]) -> None:
    def after_another(commit: Callable[[], Any]) -> Any:
        scene.append_row()
        return commit()

    scene.write(0)
    on_commit(after_another)
    scene.write(1)
    assert scene.offsets() == [*scene.after(2), 100]


def test_of_two_committers_one_is_done_by_the_other(scene: Scene) -> None:
    scene.write(0)
    for number in range(1, 4):
        planned, files = scene.planned(), [scene.files(number), scene.files(number)]
        with ThreadPoolExecutor(2) as pool:
            commit = lambda written: commit_batch(scene.location, scene.batch(number), planned, [written])  # noqa: E731, B023
            assert len(set(pool.map(commit, files))) == 1
    assert scene.offsets() == scene.after(4)


def test_a_race_for_the_first_snapshot_has_one_winner(scene: Scene) -> None:
    planned = scene.planned()
    with ThreadPoolExecutor(2) as pool:

        def commit(query: str) -> bool:
            try:
                commit_batch(scene.location, scene.batch(0, query=query), planned, [scene.files(0)])
            except PreconditionError:
                return False
            return True

        assert sorted(pool.map(commit, "ab")) == [False, True]
    assert scene.offsets() == [0, 1, 2]


def test_two_pipelines_share_a_table(scene: Scene) -> None:
    for number in range(2):
        scene.write(number)
        scene.write(number, query="other", pipeline="other")
    assert scene.offsets() == sorted(scene.after(2) * (2 if scene.key is None else 1))


def test_iceberg_17340_files_that_a_restarted_task_reports_again_are_not_committed_again(scene: Scene) -> None:
    """Apache's sink read its control topic again after a restart, and put 149 files into two snapshots."""
    scene.write(0)
    planned, files = scene.planned(), scene.files(1)
    first = commit_batch(scene.location, scene.batch(1), planned, [files])
    assert commit_batch(scene.location, scene.batch(1), planned, [files]) == first
    with pytest.raises(PreconditionError, match="here committed batch 1 of query q under its name"):
        commit_batch(scene.location, scene.batch(2), planned, [files])
    assert scene.offsets() == scene.after(2)


def test_iceberg_16282_a_coordinator_that_died_after_its_commit_is_followed_by_one_that_commits_nothing(
    scene: Scene, on_commit: Callable[[Hook], None]
) -> None:
    """Apache's sink committed the files, lost the coordinator before its offsets, and committed them again."""
    scene.write(0)
    planned, files = scene.planned(), scene.files(1)
    on_commit(lambda commit: die(commit()))
    with pytest.raises(KilledError):
        commit_batch(scene.location, scene.batch(1), planned, [files])
    commit_batch(scene.location, scene.batch(1), planned, [files])
    assert scene.offsets() == scene.after(2)


def test_iceberg_13763_of_two_coordinators_with_the_same_files_one_commits(scene: Scene) -> None:
    """Apache's sink had two coordinators, which listed the same files in snapshots a minute apart."""
    scene.write(0)
    planned, files = scene.planned(), scene.files(1)
    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(lambda _: commit_batch(scene.location, scene.batch(1), planned, [files]), range(2)))
    assert len(found) == 1
    paths = scene.table.inspect.data_files().column("file_path").to_pylist()
    assert len(paths) == len(set(paths)) == 2


def test_a_rollback_is_refused_until_it_is_accepted(scene: Scene) -> None:
    first = scene.write(0).snapshot
    scene.write(1)
    table = scene.table
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PreconditionError, match="rolled back: batch 1 of the pipeline p") as refusal:
        scene.write(2)
    assert str(refusal.value).endswith(f"odradek table accept {scene.location} p")
    accept_next(scene.location, "p")
    scene.write(2)
    assert scene.offsets() == scene.after_batches(0, 2)
    with pytest.raises(PreconditionError, match="older than the table"):
        scene.write(1)


def test_a_table_without_sequence_numbers_has_foreign_snapshots_and_is_rolled_back(scene: Scene) -> None:
    scene.prepare(properties={"format-version": "1"})
    first = scene.write(0).snapshot
    scene.write(1)
    table = scene.table
    assert [each.sequence_number for each in table.metadata.snapshots] == [0, 0]
    scene.append_row()
    scene.write(2)
    assert scene.offsets() == [*scene.after(3), 100]
    scene.table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(PreconditionError, match="rolled back: batch 2 of the pipeline p"):
        scene.write(3)


def test_only_a_pipeline_of_the_table_is_accepted(scene: Scene) -> None:
    scene.planned()
    with pytest.raises(PreconditionError, match="has no pipeline q: it has none"):
        accept_next(scene.location, "q")
    scene.write(0)
    scene.write(0, pipeline="orders", query="other")
    with pytest.raises(PreconditionError, match="has no pipeline order: it has orders, p"):
        accept_next(scene.location, "order")
    assert not [key for key in scene.table.properties if "accepts" in key]
    table = scene.table
    table.manage_snapshots().remove_tag("odradek.p").commit()
    accept_next(scene.location, "p")  # its tag was removed, and its next batch is refused for that
    with pytest.raises(PreconditionError) as refusal:
        scene.write(1, pipeline="elsewhere")
    assert str(refusal.value).endswith(f"odradek table accept {scene.location} elsewhere --new")
    accept_next(scene.location, "elsewhere", is_new=True)
    scene.write(1, pipeline="elsewhere")


def test_a_table_that_was_dropped_meanwhile_gets_nothing(scene: Scene) -> None:
    scene.write(0)
    planned, files = scene.planned(), scene.files(1)
    scene.table.catalog.drop_table("odradek.table")
    with pytest.raises(PreconditionError, match="was dropped while batch 1 of p was written"):
        commit_batch(scene.location, scene.batch(1), planned, [files])
    scene.planned()
    with pytest.raises(PreconditionError, match="was dropped and created again while batch 1"):
        commit_batch(scene.location, scene.batch(1), planned, [files])
    with pytest.raises(PreconditionError, match="the table was dropped, the tag was removed"):
        scene.write(1)


def test_a_job_that_repeats_its_commit_appends_once(scene: Scene) -> None:
    planned, files = scene.planned(""), scene.files(0)
    job = Batch(mark=Mark(pipeline="", query="job-1", batch=0, writer="here"))
    commit_batch(scene.location, job, planned, [files])
    commit_batch(scene.location, job, planned, [files])
    assert scene.offsets() == [0, 1, 2]
    assert "odradek." not in scene.table.metadata.refs


def test_old_metadata_files_are_removed(scene: Scene) -> None:
    scene.planned()
    scene.table.transaction().set_properties({"write.metadata.previous-versions-max": "2"}).commit_transaction()
    for number in range(5):
        scene.write(number)
    kept = list(Path(str(scene.location), "metadata").glob("*.metadata.json"))
    assert len(kept) == 3


def test_the_hint_names_the_newest_metadata(scene: Scene) -> None:
    from pyiceberg.table import StaticTable

    for number in range(2):
        scene.write(number)
        assert StaticTable.from_metadata(str(scene.location)).scan().to_arrow().num_rows == len(scene.after(number + 1))


def test_a_full_disk_fails_the_batch_and_the_next_attempt_writes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog import MetastoreCatalog

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    scene.write(0)
    with monkeypatch.context() as patch:
        patch.setattr(MetastoreCatalog, "_write_metadata", staticmethod(full))
        with pytest.raises(UnavailableError, match="No space left on device"):
            scene.write(1)
    scene.write(1)
    assert scene.offsets() == scene.after(2)


def test_a_locked_catalog_is_a_temporary_fault(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setattr("odradek.tables.location._LOCKED_S", 0)
    scene.write(0)
    other = sqlite3.connect(f"{scene.location}/catalog.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(UnavailableError, match="is locked by another process"):
            scene.write(1)
    finally:
        other.close()
    scene.write(1)
    assert scene.offsets() == scene.after(2)


def test_a_table_whose_files_are_gone_says_so(scene: Scene) -> None:
    scene.write(0)
    for file in Path(str(scene.location), "metadata").iterdir():
        file.unlink()
    with pytest.raises(StorageError, match="has lost a file, or was moved"):
        scene.write(1)


def test_a_tag_without_our_marks_is_refused(scene: Scene) -> None:
    scene.write(0)
    scene.append_row()
    table = scene.table
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "odradek.other").commit()
    with pytest.raises(OdradekError, match=r"the tag odradek\.other is on a snapshot that no pipeline wrote"):
        scene.write(1, pipeline="other")
