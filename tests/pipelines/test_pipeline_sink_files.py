"""The directory of a file sink: its claim, and the files removed after a process was killed."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.model import ConfigurationError, StorageError
from odradek.pipelines.files.sink_files import PARTITION, check_columns, lock_checkpoint, prepare_directory
from odradek.runtime import SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk


def data_file(number: int, ending: str = ".c000.snappy.parquet") -> str:
    """A name as Spark gives them."""
    return f"part-00000-00000000-0000-4000-8000-{number:012x}{ending}"


class Place:
    """A checkpoint and a sink's directory, as Spark writes them."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.entropy = random.Random(1)
        for folder in ("state/commits", "state/offsets", "out/_spark_metadata", "out/day=1"):
            self.disk.make_directories(folder)

    def write(self, path: str, text: str = "") -> None:
        self.disk.replace_file(path, text.encode())

    def commit(self, batch: int, *files: str, name: str | None = None, version: str = "v1") -> None:
        entries = [json.dumps({"path": f"file:///anywhere/out/{file}", "action": "add"}) for file in files]
        self.write(f"out/_spark_metadata/{name or batch}", "\n".join([version, *entries]))
        self.write(f"state/commits/{batch}", "v1\n{}")

    def begin(self, batch: int) -> None:
        """Spark begins a batch."""
        self.write(f"state/offsets/{batch}", "v1")

    def start(self, checkpoint: str = "state", options: Mapping[str, str] = {}) -> list[str]:
        """Prepare the directory; the files that are in it then."""
        prepare_directory(self.disk, self.entropy, checkpoint, "out", options, name="job")
        return self.files()

    def files(self) -> list[str]:
        names = [name for name in self.disk.list("out") if name.startswith((".", "part"))]
        return sorted(names + [f"day=1/{name}" for name in self.disk.list("out/day=1")])


@pytest.fixture
def place() -> Place:
    """A pipeline that was started once, and has committed one batch."""
    place = Place()
    place.start()
    place.begin(0)
    place.write(f"out/{data_file(1)}", "rows")
    place.commit(0, data_file(1))
    place.begin(1)
    return place


def test_files_that_no_batch_lists_are_removed_and_named_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.write(f"out/{data_file(2)}")
    place.write(f"out/.{data_file(2)}.crc")
    place.write(f"out/day=1/{data_file(3)}", "rows that come again")
    assert place.start() == [data_file(1)]
    assert caplog.messages == [
        f"job: removed 2 uncommitted files from out: {data_file(2)}, {data_file(3)}",
    ]


def test_after_a_clean_stop_nothing_is_removed_or_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    assert place.start() == [data_file(1)]
    assert caplog.messages == []


def test_files_of_an_interrupted_first_batch_are_removed() -> None:
    place = Place()
    place.start()
    place.begin(0)
    place.write(f"out/{data_file(1)}")
    assert place.start() == []


def test_a_batch_that_the_sink_has_committed_and_the_checkpoint_has_not_is_kept(place: Place) -> None:
    place.write(f"out/{data_file(2)}", "rows")
    place.commit(1, data_file(2))
    place.disk.remove("state/commits/1")
    assert place.start() == [data_file(1), data_file(2)]


def test_files_that_were_there_before_the_pipeline_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    place.write(f"out/{data_file(7)}", "of a batch job")
    assert place.start() == [data_file(7)]
    assert caplog.messages == ["job: kept 1 files that were in out before the first start"]
    place.begin(0)
    place.write(f"out/{data_file(8)}")
    assert place.start() == [data_file(7)]


def test_files_with_other_names_are_kept(place: Place) -> None:
    others = ["part-1.parquet", "partition.txt", "part-00000-nobody.c000.parquet"]
    for name in others:
        place.write(f"out/{name}")
    assert place.start() == sorted([data_file(1), *others])


def test_a_compacted_commit_log_lists_all_earlier_files(place: Place) -> None:
    place.write(f"out/{data_file(2)}", "rows")
    place.write(f"out/{data_file(3)}", "rows")
    place.commit(9, data_file(1), data_file(2), name="9.compact")
    place.commit(10, data_file(3))
    place.disk.remove("out/_spark_metadata/0")
    place.begin(11)
    place.write(f"out/{data_file(4)}")
    assert place.start() == [data_file(1), data_file(2), data_file(3)]


@pytest.mark.parametrize(
    "fault", ["no log", "end missing", "middle missing", "version", "retention", "empty", "torn", "not text"]
)
def test_an_incomplete_commit_log_removes_nothing(place: Place, fault: str) -> None:
    for batch in (1, 2):
        place.write(f"out/{data_file(batch + 1)}", "rows")
        place.commit(batch, data_file(batch + 1))
    before = place.files()
    missing = {"no log": (0, 1, 2), "end missing": (2,), "middle missing": (1,), "retention": (0,)}
    for batch in missing.get(fault, ()):
        place.disk.remove(f"out/_spark_metadata/{batch}")
    if fault == "version":
        place.commit(2, data_file(3), version="v2")
    contents = {"empty": b"", "torn": b'v1\n{"path":"file', "not text": b"v1\n\xff"}
    if fault in contents:
        place.disk.replace_file("out/_spark_metadata/1", contents[fault])
    place.begin(3)
    if fault == "retention":
        place.commit(1, name="1.compact")
    assert place.start(options={"Retention": "1d"} if fault == "retention" else {}) == before


@pytest.mark.parametrize(
    "others",
    [
        "report/",  # a folder that is not a partition
        "report/_spark_metadata/0",  # the sink of another query
        "kind=a/_spark_metadata/0",
        "kind=a/_SUCCESS",
        "kind=a/_odradek",
        "_SUCCESS",  # a batch job that wrote into the directory itself
        "_delta_log/0",
    ],
)
def test_files_of_other_jobs_are_kept(place: Place, others: str, caplog: pytest.LogCaptureFixture) -> None:
    first = others.partition("/")[0]
    folder = f"out/{first}" if not first.startswith("_") else "out"
    place.disk.make_directories(f"out/{others}".rpartition("/")[0])
    if not others.endswith("/"):
        place.write(f"out/{others}")
    place.write(f"{folder}/{data_file(2)}", "rows of another job")
    place.start()
    place.start()
    assert data_file(2) in place.disk.list(folder)
    left = "job: left 1 files in out that no batch of this pipeline committed and another job may have written: "
    assert caplog.messages == ([left + data_file(2)] if folder == "out" else [])


def test_files_written_while_no_batch_was_in_progress_are_kept(place: Place) -> None:
    place.disk.remove("state/offsets/1")
    place.write(f"out/{data_file(2)}", "rows of another job")
    assert place.start() == [data_file(1), data_file(2)]
    place.begin(1)
    place.write(f"out/{data_file(3)}")
    assert place.start() == [data_file(1), data_file(2)]


def test_files_that_are_older_than_the_batch_in_progress_are_kept(place: Place) -> None:
    place.write(f"out/{data_file(2)}", "rows of another job")
    place.begin(1)
    place.write(f"out/{data_file(3)}")
    assert place.start() == [data_file(1), data_file(2)]


def test_files_behind_links_are_kept(tmp_path: Path) -> None:
    lake, out, state = tmp_path / "lake", tmp_path / "out", tmp_path / "state"
    for folder in (lake, out, state / "offsets"):
        folder.mkdir(parents=True)

    def start() -> None:
        prepare_directory(SystemDisk(), random.Random(1), str(state), str(out), {}, name="job")

    start()
    (state / "offsets" / "0").touch()
    (lake / data_file(1)).touch()
    (out / "day=1").symlink_to(lake)
    (out / data_file(2)).symlink_to(lake / data_file(1))
    (out / data_file(3)).touch()
    start()
    assert [path.name for path in lake.iterdir()] == [data_file(1)]
    assert {path.name for path in out.iterdir()} == {"_odradek", "day=1", data_file(2)}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"checkpoint": "x"}', b"\xff"])
def test_an_unreadable_claim_is_refused_with_what_to_do(place: Place, content: bytes) -> None:
    place.disk.replace_file("out/_odradek", content)
    with pytest.raises(StorageError, match=r"^out/_odradek is not a claim .*: remove this file if out has the results"):
        place.start()
    place.disk.remove("out/_odradek")
    assert place.start() == [data_file(1)]


def test_an_empty_id_of_the_checkpoint_is_refused_with_what_to_do(place: Place) -> None:
    place.write("state/odradek_sink")
    with pytest.raises(StorageError, match=r'^state/odradek_sink is empty: write the id "checkpoint"'):
        place.start()


def test_a_directory_of_another_checkpoint_is_refused(place: Place) -> None:
    place.disk.make_directories("other")
    with pytest.raises(ConfigurationError, match=r"sink\.path out has the results of another checkpoint than other"):
        place.start("other")


def test_a_directory_whose_checkpoint_was_deleted_is_refused(place: Place) -> None:
    """Spark would take the first batches of the new checkpoint for the committed ones, and skip them."""
    place.disk.remove("state/odradek_sink")
    with pytest.raises(ConfigurationError, match="give it a new path, or the checkpoint that belongs to it"):
        place.start()


def test_a_first_start_that_died_between_id_and_claim_is_repeated() -> None:
    place = Place()
    place.start()
    place.disk.remove("out/_odradek")
    assert place.start() == []
    place.begin(0)
    place.write(f"out/{data_file(1)}")
    assert place.start() == []


def test_a_checkpoint_is_locked_by_one_process() -> None:
    disk = MemoryDisk()
    lock = lock_checkpoint(disk, "state")
    with pytest.raises(StorageError, match=r"the checkpoint state is in use by .*: stop that pipeline first"):
        lock_checkpoint(disk, "state")
    lock.release()
    lock_checkpoint(disk, "state").release()


DAYS = {"day": "date" + PARTITION, "price": "double"}


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (DAYS | {"price": "string"}, "the column price is string, and double in the files of out"),
        (DAYS | {"PRICE": "int"}, "the column PRICE is int, and double in the files"),
        (DAYS | {"day": "date"}, "the column day is date, and date of partition_by in the files"),
        ({"price": "double"}, "sink.partition_by is nothing, and day in the files"),
    ],
)
def test_columns_that_no_reader_reads_with_those_of_the_files_are_refused(
    place: Place, after: dict[str, str], sentence: str
) -> None:
    check_columns(place.disk, "state", "out", DAYS, by_position=False, claim=True)
    place.commit(1, data_file(2))
    with pytest.raises(ConfigurationError, match=sentence):
        check_columns(place.disk, "state", "out", after, by_position=False, claim=True)
    place.start()
    check_columns(place.disk, "state", "out", DAYS | {"city": "string"}, by_position=False, claim=True)


def test_csv_files_keep_the_order_of_their_columns(place: Place) -> None:
    check_columns(place.disk, "state", "out", {"a": "int", "b": "int"}, by_position=True, claim=True)
    place.commit(1, data_file(2))
    with pytest.raises(ConfigurationError, match="the columns are b int, a int, and a int, b int in the files"):
        check_columns(place.disk, "state", "out", {"b": "int", "a": "int"}, by_position=True, claim=True)


def test_columns_of_a_start_without_a_batch_count_for_nothing(place: Place) -> None:
    for kind in ("int", "date"):
        check_columns(place.disk, "state", "out", DAYS | {"new": kind}, by_position=False, claim=True)
    place.commit(1, data_file(2))
    check_columns(place.disk, "state", "out", DAYS, by_position=False, claim=False)
    with pytest.raises(ConfigurationError, match="the column new is int, and date"):
        check_columns(place.disk, "state", "out", DAYS | {"new": "int"}, by_position=False, claim=False)
