"""A process that is killed in any step of a pipeline's first batch: the next start goes on."""

import json
import shutil
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest

from odradek.model import StorageError
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline
from odradek.pipelines.files.sink_files import lock_checkpoint
from odradek.pipelines.runner import run_pipelines
from odradek.pipelines.status import State
from odradek.runtime import SystemDisk
from odradek.spark.master import FIRST_BATCH
from odradek.testing.servers.odradek_process import ServedBroker

FUNCTION: Final = """
def once(s):
    return s.dropDuplicates(["value"])
"""
PIPELINE: Final = """
kind = "real_time"
checkpoint = "state"
function = "distinct_values:once"
[source]
bootstrap_servers = "{source}"
[trigger]
available_now = true
[streams.s]
topics = ["{topic}"]
[sink]
path = "out"
"""


def made(directory: Path, source: ServedBroker, topic: str) -> AnyPipeline:
    directory.mkdir(exist_ok=True)
    (directory / "distinct_values.py").write_text(FUNCTION)
    values = tomllib.loads(PIPELINE.format(source=source.bootstrap_servers, topic=topic))
    return parse_pipeline(values, directory=directory, default_name=directory.name)


def values(directory: Path) -> list[int]:
    """Return the values of all files: at a pipeline's end it has no others than those that are committed."""
    return sorted(map(int, ds.dataset(directory / "out", format="parquet").to_table()["value"].to_pylist()))


def killed_in_each_step(whole: Path, into: Path) -> Iterator[Path]:
    """Yield directories as kills leave them: Spark writes `.NAME.UUID.tmp`, names it, then names its checksum.

    Data files have their names from the beginning.
    """
    end = (whole / "state/commits/0").stat().st_mtime_ns
    made = (file for folder in ("state", "out") for file in (whole / folder).rglob("*"))
    files = sorted(made, key=lambda file: file.stat().st_mtime_ns)
    own = [file for file in files if file.name.startswith(("odradek_sink", "_odradek"))]
    files = [file for file in files if file.is_file() and file.stat().st_mtime_ns <= end and file not in own]
    files = [file for file in files if not file.name.endswith((".crc", ".lock")) and "odradek_" not in file.name]
    for number, file in enumerate(files):
        for step in ("written", "named"):
            directory = into / f"{number}-{file.name[:9]}-{step}"
            for each in (*own, *files[:number], file):
                checksum = each.with_name(f".{each.name}.crc")
                for copied in (each, *([checksum] if checksum.exists() else [])):
                    target = directory / copied.relative_to(whole)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(copied, target)
            # Spark stops a query when another one with its id starts.
            (directory / "state/metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
            (directory / "state/.metadata.crc").unlink(missing_ok=True)
            last = directory / file.relative_to(whole)
            last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
            if step == "written":
                last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
                if not file.name.startswith("part-"):
                    last.rename(last.with_name(f".{file.name}.11111111-2222.tmp"))
                    (last.parent / f"..{file.name}.11111111-2222.tmp.crc").touch()
            yield directory


@pytest.mark.long
@pytest.mark.needs("java")
@pytest.mark.timeout(600)
def test_a_pipeline_goes_on_after_a_kill_in_each_step_of_its_first_batch(
    spark: Any, source: ServedBroker, producer: Any, topic: str, tmp_path: Path
) -> None:
    for number in range(60):
        producer.produce(topic, b"%d" % (number % 30), partition=number % 3)
    assert producer.flush(30) == 0
    (status,) = run_pipelines(spark, [made(tmp_path / "whole", source, topic)])
    assert (status.state, values(tmp_path / "whole")) == (State.DONE, list(range(30)))
    killed = list(killed_in_each_step(tmp_path / "whole", tmp_path))
    assert {"0-metadata-written", "1-0-written", "1-0-named"} < {each.name for each in killed}
    for first in range(0, len(killed), 3):
        part = killed[first : first + 3]
        statuses = run_pipelines(spark, [made(each, source, topic) for each in part])
        assert [status.state for status in statuses] == [State.DONE] * len(part)
        assert {each.name: values(each) for each in part} == {each.name: list(range(30)) for each in part}


@pytest.mark.needs("java")
def test_any_query_of_a_session_goes_on_beside_a_file_that_a_kill_left(spark: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "state"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.abc.tmp").touch()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint.as_uri())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert json.loads((checkpoint / "metadata").read_text())["id"] == query.id


@pytest.mark.needs("java")
@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_a_pipeline_on_a_url_goes_on_beside_a_file_that_a_kill_left(
    spark: Any, source: ServedBroker, producer: Any, topic: str, tmp_path: Path, scheme: str
) -> None:
    """Of Hadoop's file systems in Spark's JARs, viewfs is one that is not the local one: it leads to that."""
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.default.link.{tmp_path}", tmp_path.as_uri())
    (tmp_path / "state" / "offsets").mkdir(parents=True)
    (tmp_path / "state" / "offsets" / ".0.abc.tmp").touch()
    producer.produce(topic, b"7")
    assert producer.flush(30) == 0
    text = PIPELINE.format(source=source.bootstrap_servers, topic=topic)
    text = text.replace('"state"', f'"{scheme}://{tmp_path}/state"').replace('"out"', f'"{scheme}://{tmp_path}/out"')
    (tmp_path / "distinct_values.py").write_text(FUNCTION)
    (status,) = run_pipelines(spark, [parse_pipeline(tomllib.loads(text), directory=tmp_path, default_name="job")])
    assert (status.state, status.error, values(tmp_path)) == (State.DONE, None, [7])
    assert (tmp_path / "state" / "commits" / "0").exists()


@pytest.mark.needs("java")
def test_a_query_of_another_session_starts_when_the_file_is_removed(spark: Any, tmp_path: Path) -> None:
    other = spark.newSession()
    for name in FIRST_BATCH:
        other.conf.set(name, "true")
    offsets = tmp_path / "state" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.abc.tmp", "..0.abc.tmp.crc"):
        (offsets / name).touch()
    rows = other.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    counts = rows.groupBy("value").count().writeStream.format("noop").outputMode("complete")
    writer = counts.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    with pytest.raises(Exception, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        writer.start().awaitTermination()
    for each in offsets.glob(".*.tmp*"):
        each.unlink()
    writer.start().awaitTermination()
    assert (tmp_path / "state" / "commits" / "0").exists()


@pytest.mark.parametrize("left", ["commits/0", "state/0/0/1.delta"])
def test_a_checkpoint_without_its_offsets_is_refused(left: str, tmp_path: Path) -> None:
    (tmp_path / left).parent.mkdir(parents=True)
    (tmp_path / left).touch()
    with pytest.raises(StorageError, match="has lost its offsets"):
        lock_checkpoint(SystemDisk(), str(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    lock_checkpoint(SystemDisk(), str(tmp_path)).release()
