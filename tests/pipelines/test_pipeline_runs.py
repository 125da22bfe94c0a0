"""Pipelines in a real Spark, between two served brokers: results, checkpoints, the lag of their groups (M11)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.pipelines.errors import PipelineError
from odradek.pipelines.queries import new_session
from odradek.pipelines.runner import run_pipelines
from odradek.pipelines.status import Status
from odradek.spark.session import CHECKPOINT_FILES, CHECKPOINT_FILES_OF_A_DISK
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker
from tests.pipelines.scene import Scene, consumed

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

HOUR_MS = 3_600_000
START_MS = 1_356_998_400_000
"""2013-01-01, midnight in UTC."""

Publish = Callable[..., None]


@pytest.fixture
def publish(producer: Any, topic: str) -> Publish:
    """Writes orders, one per minute; order n goes to partition n % 3."""

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce(
                topic,
                json.dumps({"number": number, "city": "Ulm" if number % 2 else None}),
                key=None if number % 5 == 0 else f"k{number}",
                partition=number % 3,
                timestamp=START_MS + number * 60_000,
                headers=[("n", str(number)), ("n", None)],
            )
        assert producer.flush(30) == 0

    return send


REAL_TIME = """
kind = "real_time"
name = "{topic}.hours"
checkpoint = "hours.state"
sql = \"\"\"
SELECT window(timestamp, '1 hour').start AS hour, count(*) AS orders FROM orders GROUP BY window(timestamp, '1 hour')
\"\"\"
[source]
bootstrap_servers = "{source}"
max_offsets_per_trigger = 90
[trigger]
available_now = true
[streams.orders]
topics = ["{topic}"]
watermark = "30 minutes"
[sink]
path = "hours"
"""

OFFLINE = """
kind = "offline"
name = "{topic}.archive"
checkpoint = "archive.state"
sql = "SELECT number, city, key, partition FROM orders"
[source]
bootstrap_servers = "{source}"
[streams.orders]
topics = ["{topic}"]
value = "number INT, city STRING"
[sink]
path = "archive"
partition_by = ["partition"]
"""

MIRROR = """
kind = "mirror"
name = "{topic}.mirror"
checkpoint = "mirror.state"
[source]
bootstrap_servers = "{source}"
topics = ["{topic}"]
[trigger]
available_now = true
[target]
bootstrap_servers = "{target}"
topic_prefix = "copy."
kafka = {{ "compression.type" = "zstd" }}
"""


def records(broker: ServedBroker, topic: str, count: int) -> list[tuple[Any, ...]]:
    """(partition, offset, key, value, timestamp, headers), in order."""
    return [
        (each.partition(), each.offset(), each.key(), each.value(), each.timestamp(), each.headers())
        for each in consumed(broker, topic, count)
    ]


def test_pipelines_of_three_kinds_run_side_by_side(scene: Scene, publish: Publish) -> None:
    publish(0, 211)
    jobs = [scene.job(text) for text in (REAL_TIME, OFFLINE, MIRROR)]
    seen: list[Status] = []
    statuses = run_pipelines(scene.spark, jobs, on_status=seen.extend)
    figures = {status.kind: (status.figures.records_in, status.figures.records_out) for status in statuses}
    # The last order, of 03:30, moves the watermark to the end of the third hour.
    assert figures == {"real_time": (211, 3), "offline": (211, 211), "mirror": (211, 211)}
    assert not any(status.active for status in statuses)
    assert any(status.active for status in seen)

    hours = [(row["hour"].timestamp() * 1000 - START_MS, row["orders"]) for row in scene.rows("hours")]
    assert sorted(hours) == [
        (0, 60),
        (HOUR_MS, 60),
        (2 * HOUR_MS, 60),
    ]
    archive = scene.rows("archive")
    assert sorted(row["number"] for row in archive) == list(range(211))
    assert all(row["partition"] == row["number"] % 3 for row in archive)
    assert {row["number"] for row in archive if row["key"] is None} == set(range(0, 211, 5))
    assert records(scene.target, f"copy.{scene.topic}", 211) == records(scene.source, scene.topic, 211)
    for job in jobs:
        assert scene.lag(job.group) == 0


def test_a_mirror_makes_topics_like_their_originals(scene: Scene) -> None:
    from confluent_kafka.admin import ConfigResource, ResourceType

    scene.run(MIRROR)
    there, copy = scene.there, f"copy.{scene.topic}"
    resource = ConfigResource(ResourceType.TOPIC, copy)
    configs = there.describe_configs([resource])[resource].result(30)
    assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("-1", "1000000")
    assert len(there.list_topics(copy, timeout=30).topics[copy].partitions) == 3


def test_values_that_do_not_fit_are_counted_and_kept_unchanged(scene: Scene, producer: Any, publish: Publish) -> None:
    publish(0, 6)
    for value in (b"", b'{"number":1} rest', b"\xff", None, None):
        producer.produce(scene.topic, value, key=b"k", partition=1, timestamp=START_MS)
    assert producer.flush(30) == 0
    real_time = OFFLINE.replace('"offline"', '"real_time"').replace("archive", "live")
    real_time = real_time.replace("[sink]", "[trigger]\navailable_now = true\n[sink]")
    statuses = scene.run(OFFLINE, real_time)
    for status, folder in zip(statuses, ("archive", "live"), strict=True):
        figures = status.figures
        assert (figures.records_in, figures.records_out) == (11, 8)
        assert (figures.bad_rows, figures.tombstones) == (3, 2)
        assert sorted(row["number"] for row in scene.rows(folder) if row["number"] is not None) == list(range(6))
        letters = scene.rows(f"{folder}.state.dead_letters")
        assert [(each["topic"], each["partition"], each["offset"], each["value"]) for each in letters] == [
            (scene.topic, 1, 2, b""),
            (scene.topic, 1, 3, b'{"number":1} rest'),
            (scene.topic, 1, 4, b"\xff"),
        ]


def test_a_pipeline_continues_from_its_checkpoint_and_removes_files_of_a_killed_attempt(
    scene: Scene, publish: Publish, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = scene.job(OFFLINE).group
    publish(0, 6)
    (first,) = scene.run(OFFLINE)
    # As kill -9 leaves it: one file empty, one with the rows of a batch that is not in the sink's commit log.
    done = next((tmp_path / "archive" / "partition=0").glob("part-*.parquet"))
    name = re.sub("[0-9a-f]{12}([.-]c000)", r"000000000000\1", done.name)
    shutil.copyfile(tmp_path / "archive.state" / "offsets" / "0", tmp_path / "archive.state" / "offsets" / "1")
    empty, whole = done.with_name(name), done.parent.with_name("partition=1") / name.replace("part-00000", "part-00009")
    empty.touch()
    whole.write_bytes(done.read_bytes())
    publish(6, 3)
    assert scene.lag(group) == 3
    (second,) = scene.run(OFFLINE)
    assert (first.figures.records_in, second.figures.records_in) == (6, 3)
    assert scene.lag(group) == 0
    assert not empty.exists()
    assert not whole.exists()
    assert scene.numbers("archive") == list(range(9))
    assert any("removed 2 uncommitted files" in line for line in caplog.messages)


def test_a_topic_that_was_created_again_ends_an_offline_pipeline_or_is_read_from_its_beginning(
    scene: Scene, publish: Publish
) -> None:
    from confluent_kafka.admin import NewTopic

    topic = scene.topic
    publish(0, 30)
    assert scene.run(OFFLINE)[0].state == "done"
    scene.admin.delete_topics([topic])[topic].result(30)
    scene.admin.create_topics([NewTopic(topic, 3)])[topic].result(30)
    publish(30, 60)
    with pytest.raises(PipelineError) as failed:
        scene.run(OFFLINE)
    assert str(failed.value) == (
        f"{topic}.archive: source.fail_on_data_loss: topic {topic} was deleted and created again: unread records of "
        "the old one are lost, the new one is read from its beginning; set source.fail_on_data_loss = false to read "
        "the rest"
    )
    (status,) = scene.run(OFFLINE.replace("[source]", "[source]\nfail_on_data_loss = false"))
    assert status.state == "done"
    assert scene.numbers("archive") == list(range(90))


def test_a_pipeline_writes_its_results_to_a_topic(scene: Scene, publish: Publish) -> None:
    publish(0, 9)
    sql = "SELECT key, upper(city) AS value, partition FROM orders WHERE city IS NOT NULL"
    sink = 'format = "odradek"\nbootstrap_servers = "{source}"\ntopic = "{topic}.big"'
    text = OFFLINE.replace('"offline"', '"real_time"').replace("SELECT number, city, key, partition FROM orders", sql)
    text = text.replace('path = "archive"\npartition_by = ["partition"]', sink)
    text = 'guarantee = "exactly_once"\n' + text.replace("[sink]", "[trigger]\navailable_now = true\n[sink]")
    (status,) = scene.run(text)
    assert (status.figures.records_in, status.figures.records_out) == (9, 4)
    found = [record[2:4] for record in records(scene.source, f"{scene.topic}.big", 4)]
    assert {key for key, _ in found} == {b"k1", b"k3", b"k7", None}
    assert [value for _, value in found] == [b"ULM"] * 4


def test_a_continuous_pipeline_runs_until_it_is_stopped(scene: Scene, publish: Publish) -> None:
    with scene.started(REAL_TIME.replace("available_now = true", 'interval = "100 milliseconds"')) as run:
        publish(0, 9)
        eventually(lambda: run.poll().figures.records_in == 9, within_s=600, what="nine records")
        publish(9, 3)
        eventually(lambda: run.poll().figures.records_in == 12, within_s=600, what="three more")
        assert run.poll().active
    assert not run.poll().active
    assert scene.lag(f"{scene.topic}.hours") == 0


def test_a_pipeline_in_a_group_leaves_it_when_it_is_stopped_and_another_goes_on(
    scene: Scene, publish: Publish, tmp_path: Path
) -> None:
    """M11. The other one has a checkpoint of its own: the offsets are the group's."""

    def members() -> int:
        return len(scene.admin.describe_consumer_groups([group])[group].result(30).members)

    group = f"{scene.topic}.archive"
    text = OFFLINE.replace("[streams", 'consume_mode = "group"\nkafka = {{ "client.rack" = "r" }}\n[streams')
    publish(0, 9)
    with scene.started(text.replace("offline", "real_time")) as run:
        eventually(lambda: run.poll().figures.records_in == 9, within_s=600, what="nine records")
        eventually(lambda: scene.committed(group) == 9, within_s=60, what="the commit")
        assert members() == 1
    eventually(lambda: members() == 0, within_s=20, what="the end of the membership, before its session times out")
    publish(9, 3)
    (status,) = run_pipelines(scene.spark, [scene.job(text, tmp_path / "other")])
    assert status.figures.records_in == 3
    assert scene.lag(group) == 0
    eventually(lambda: members() == 0, within_s=20, what="the end of the other membership")


@pytest.mark.parametrize(
    ("text", "old", "new", "sentence"),
    [
        (OFFLINE, "SELECT number", "SELECT nummer", "nummer"),
        (OFFLINE, "number INT, city", "number INT, number", "streams.orders.value"),
        (OFFLINE, 'topics = ["{topic}"]', 'topics = ["not.there"]', "there is no topic 'not.there'"),
        (REAL_TIME, "watermark =", 'event_time = "nothing"\nwatermark =', "event_time names no column: nothing"),
        (MIRROR, '"zstd"', '"zip"', "compression.type"),
    ],
)
def test_a_pipeline_that_cannot_run_fails_with_one_line(
    scene: Scene, text: str, old: str, new: str, sentence: str
) -> None:
    assert old in text
    job = scene.job(text.replace(old, new))
    with pytest.raises(PipelineError) as caught:
        run_pipelines(scene.spark, [job])
    assert str(caught.value).startswith(f"{job.name}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mirror_adds_partitions_and_refuses_topics_with_more(scene: Scene) -> None:
    from confluent_kafka.admin import NewPartitions, NewTopic

    there, copy = scene.there, f"copy.{scene.topic}"
    there.create_topics([NewTopic(copy, 2)])[copy].result(30)
    scene.run(MIRROR)
    assert len(there.list_topics(copy, timeout=30).topics[copy].partitions) == 3
    there.create_partitions([NewPartitions(copy, 4)])[copy].result(30)
    with pytest.raises(PipelineError, match=r"has 4 at the target where the source has 3"):
        scene.run(MIRROR)


def test_the_command_runs_a_file_and_prints_its_results(
    spark: Any, source: ServedBroker, topic: str, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session of these tests, which it must leave to them; the next test starts a process and its own Spark."""
    stopped: list[Any] = []
    monkeypatch.setattr("odradek.spark.session.stop_session", stopped.append)
    publish(0, 20)
    file = tmp_path / "archive.toml"
    file.write_text(OFFLINE.format(topic=topic, source=source.bootstrap_servers))
    done = CliRunner().invoke(main, ["pipeline", "run", "--json", str(file)])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert (printed["name"], printed["records_in"], printed["records_out"]) == (f"{topic}.archive", 20, 20)
    assert printed["lag"] == 0
    assert [session.sparkContext for session in stopped] == [spark.sparkContext]


@pytest.mark.parametrize(("checkpoint", "is_kept"), [("/data/checkpoint", True), ("hdfs://names/checkpoint", False)])
def test_a_checkpoint_on_a_url_has_sparks_own_way_of_writing_files(spark: Any, checkpoint: str, is_kept: bool) -> None:
    session = new_session(spark, SimpleNamespace(checkpoint=checkpoint))
    assert (session.conf.get(CHECKPOINT_FILES, None) == CHECKPOINT_FILES_OF_A_DISK) is is_kept
    assert spark.conf.get(CHECKPOINT_FILES) == CHECKPOINT_FILES_OF_A_DISK


def test_the_command_names_the_file_and_the_line_of_a_key_that_spark_refuses(
    spark: Any, source: ServedBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.spark.session.stop_session", lambda spark: None)
    wrong, lost = tmp_path / "wrong.toml", tmp_path / "lost.toml"
    text = OFFLINE.format(topic=topic, source=source.bootstrap_servers)
    wrong.write_text(text.replace("SELECT number", "SELECT nummer"))
    lost.write_text(text.replace(f"{topic}.archive", "lost").replace('"archive', '"lost').replace(topic, "no"))
    done = CliRunner().invoke(main, ["pipeline", "run", str(wrong), str(lost)])
    assert done.exit_code == 1
    assert done.output.count("UNRESOLVED_COLUMN") == 1
    (line,) = (number for number, text in enumerate(wrong.read_text().splitlines(), 1) if "nummer" in text)
    assert f"odradek: {wrong}:{line}: sql: [UNRESOLVED_COLUMN" in done.stderr
    (line,) = (number for number, text in enumerate(lost.read_text().splitlines(), 1) if text.startswith("topics"))
    assert f"odradek: {lost}:{line}: streams.orders.topics: there is no topic 'no': create it first" in done.stderr
    assert "there is no topic 'no'" in (tmp_path / "lost.state" / "odradek_error").read_text()


@pytest.mark.usefixtures("short_lived_java")
def test_results_are_exact_after_kills_of_the_command_and_of_its_workers_and_ctrl_c_stops_it(
    scene: Scene, publish: Publish, tmp_path: Path
) -> None:
    publish(0, 211)
    group = f"{scene.topic}.hours"
    file = tmp_path / "hours.toml"
    text = REAL_TIME.replace("trigger = 90", "trigger = 30")
    text = text.replace("available_now = true", 'interval = "200 milliseconds"\n[restart]\nbackoff = "10 milliseconds"')
    file.write_text(text.format(**scene.names))
    command = [Path(sys.executable).with_name("odradek"), "pipeline", "run", file]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            eventually(lambda: scene.committed(group) > 0, within_s=600, what="a batch")
        finally:
            process.kill()  # its JVM ends by itself
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            eventually(lambda: kill_workers(process.pid), within_s=600, what="a process in which Spark runs Python")
            eventually(lambda: orders_by_hour(tmp_path) == [60, 60, 60], within_s=600, what="three whole hours")
            # A terminal sends it to all of the group, Spark's Python workers included.
            os.killpg(process.pid, signal.SIGINT)
            printed, errors = process.communicate(timeout=120)
        finally:
            process.kill()  # who waits for it would wait for ever where it has not ended
    assert process.returncode == 130, errors
    assert re.fullmatch(rf"{scene.topic}\.hours: \d+ records in, .*, stopped\n", printed)
    assert "Traceback" not in errors
    assert orders_by_hour(tmp_path) == [60, 60, 60]
    assert scene.committed(group) == 211


def kill_workers(session: int) -> int:
    """Kill the processes of a session in which Spark runs Python; return how many there were."""
    found = 0
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            is_worker = b"pyspark.worker" in directory.joinpath("cmdline").read_bytes()
            if is_worker and directory.joinpath("stat").read_text().rpartition(")")[2].split()[3] == str(session):
                os.kill(int(directory.name), signal.SIGKILL)
                found += 1
    return found


def orders_by_hour(directory: Path) -> list[int]:
    """Return the results so far of the real-time pipeline; none while a file is being written."""
    try:
        rows = ds.dataset(directory / "hours", format="parquet").to_table(["hour", "orders"]).to_pylist()
    except (OSError, pa.ArrowInvalid):
        return []
    return [row["orders"] for row in sorted(rows, key=lambda row: row["hour"])]
