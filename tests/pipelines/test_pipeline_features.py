"""Bad rows, functions, groups of a mirror, back-fills and merged files, in a real Spark with real brokers (M11)."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.config.toml import TomlKeyError
from odradek.model import ConfigurationError
from odradek.pipelines.errors import PipelineError
from odradek.pipelines.files import compaction
from odradek.pipelines.mirror import MirrorTopics
from odradek.pipelines.queries import check_pipeline
from odradek.pipelines.runner import run_pipelines
from odradek.pipelines.status import State, Status
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker
from tests.pipelines.scene import Scene, consumed

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

DAY_MS = 86_400_000
START_MS = 1_356_998_400_000
"""2013-01-01, midnight in UTC."""

HEAD = """
kind = "{kind}"
name = "{topic}.job"
checkpoint = "state"
"""
BODY = """
[source]
bootstrap_servers = "{source}"
[trigger]
available_now = true
[streams.orders]
topics = ["{topic}"]
value = "number INT, offset STRING"
[sink]
path = "out"
"""

OFFLINE = HEAD + BODY.replace("[trigger]\navailable_now = true\n", "")

Send = Callable[..., None]


@pytest.fixture
def send(producer: Any, topic: str) -> Send:
    """Writes values to a partition, one per day."""

    def write(values: list[bytes | None], *, partition: int = 0, first_day: int = 0) -> None:
        for number, value in enumerate(values):
            at = START_MS + (first_day + number) * DAY_MS
            producer.produce(topic, value, key=b"k", partition=partition, timestamp=at, headers=[("h", b"1")])
        assert producer.flush(30) == 0

    return write


def orders(first: int, count: int) -> list[bytes | None]:
    return [json.dumps({"number": number, "offset": f"o{number}"}).encode() for number in range(first, first + count)]


def test_bad_rows_go_to_a_topic_with_their_headers_and_their_origin(scene: Scene, send: Send) -> None:
    send([*orders(0, 2), b"oops", *orders(2, 1)])
    text = HEAD + 'dead_letter_topic = "{topic}.dead"\nsql = "SELECT number, value_offset FROM orders"' + BODY
    (status,) = scene.run(text, kind="real_time")
    assert (status.state, status.figures.bad_rows, status.figures.lag) == (State.DONE, 1, 0)
    rows = scene.rows("out")
    assert sorted((row["number"], row["value_offset"]) for row in rows) == [(0, "o0"), (1, "o1"), (2, "o2")]
    (letter,) = consumed(scene.source, f"{scene.topic}.dead", 1)
    assert (letter.key(), letter.value()) == (b"k", b"oops")
    assert letter.timestamp()[1] > START_MS + 365 * DAY_MS, "retention counts from the moment of the letter"
    assert letter.headers() == [
        ("h", b"1"),
        ("__connect.errors.topic", scene.topic.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"2"),
        ("__connect.errors.exception.message", b"the value is not JSON"),
        ("odradek.errors.timestamp", str(START_MS + 2 * DAY_MS).encode()),
    ]


def test_keys_of_any_bytes_are_readable_text_or_the_bytes_and_their_type_stays(scene: Scene, producer: Any) -> None:
    producer.produce(scene.topic, b"v", key=b"\xff\x01")
    assert producer.flush(30) == 0
    text = (
        HEAD
        + """sql = "SELECT key AS text, NULL AS raw FROM orders UNION ALL SELECT NULL, key FROM raw"
[source]
bootstrap_servers = "{source}"
[streams.orders]
topics = ["{topic}"]
[streams.raw]
topics = ["{topic}"]
key = "binary"
[sink]
path = "out"
"""
    )
    scene.run(text, kind="offline")
    assert {(row["text"], row["raw"]) for row in scene.rows("out")} == {("\ufffd\x01", None), (None, b"\xff\x01")}
    with pytest.raises(PipelineError, match="sql: the column raw is string, and binary in the files of"):
        scene.run(text.replace("NULL, key", "NULL, hex(key)"), kind="offline")


def test_a_bad_row_fails_its_pipeline_and_no_other(scene: Scene, send: Send) -> None:
    send([*orders(0, 2), b"oops"])
    strict = HEAD + 'on_bad_row = "fail"\nsql = "SELECT number FROM orders"' + BODY
    lenient = (
        strict.replace('"fail"', '"null"').replace(".job", ".lenient").replace('"state"', '"s2"').replace("out", "o2")
    )
    limited = 'max_bad_rows = "0"\n' + lenient.replace(".lenient", ".limited").replace('"s2"', '"s3"').replace(
        "o2", "o3"
    )
    jobs = [scene.job(text, kind="real_time") for text in (strict, lenient, limited)]
    seen: list[list[Status]] = []
    with pytest.raises(
        PipelineError, match=r"job: .*-0 offset 2: the value is not JSON, and on_bad_row is fail"
    ) as caught:
        run_pipelines(scene.spark, jobs, on_status=lambda statuses: seen.append(list(statuses)))
    assert "1 of 3 records are bad rows, more than max_bad_rows = 0; some values" in str(caught.value)
    assert "fields (the value is not JSON); their fields are null" in str(caught.value)
    states = [(each.state, each.restarts) for each in seen[-1]]
    assert states == [(State.FAILED, 0), (State.DONE, 0), (State.FAILED, 0)]
    assert [each.figures.bad_rows for each in seen[-1]] == [0, 1, 1]
    assert [row["number"] for row in scene.rows("o2")] == [0, 1, None]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_query_and_a_sink_can_be_python_functions(scene: Scene, send: Send, tmp_path: Path) -> None:
    send(orders(0, 4))
    module = f"jobs_{scene.topic[-8:]}"
    (tmp_path / f"{module}.py").write_text(
        """
from pyspark.sql.functions import col, udf

@udf("int")
def doubled(number):
    return 2 * number

def transform(orders):
    return orders.select(doubled("number").alias("number")).where(col("number") > 1)

def write(batch, batch_id):
    batch.write.mode("append").parquet(__file__.rpartition("/")[0] + "/out")

def wrong(orders):
    return 5
"""
    )
    text = HEAD + f'function = "{module}:transform"' + BODY
    text = text.replace('path = "out"', f'format = "foreach_batch"\nfunction = "{module}:write"')
    (status,) = scene.run(text, kind="real_time")
    assert (status.figures.records_in, status.figures.records_out) == (4, 3)
    assert scene.numbers("out") == [2, 4, 6]
    for old, new, sentence in (
        (":transform", ":nothing", f"function: {module} has no function nothing"),
        (f'"{module}:transform', '"no_such_module:f', "function: no_such_module cannot be imported"),
        (":transform", ":wrong", f"function: {module}:wrong failed: it returned int, not a DataFrame"),
    ):
        with pytest.raises(TomlKeyError) as caught:
            check_pipeline(scene.spark, scene.job(text.replace(old, new), kind="real_time"))
        assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_table_format_without_its_jar_is_a_clear_error(scene: Scene, sink: str) -> None:
    text = OFFLINE.replace(
        'path = "out"', f'format = "{sink}"\npath = "out"' if sink == "delta" else 'format = "iceberg"\ntable = "a.b"'
    )
    with pytest.raises(TomlKeyError, match=f"sink.format: Spark has no JAR of {sink.capitalize()}: give --conf spark"):
        check_pipeline(scene.spark, scene.job(text, kind="offline"))


def test_a_time_range_is_read_in_steps_and_a_second_run_adds_nothing(scene: Scene, send: Send) -> None:
    for partition in range(3):
        send(orders(10 * partition, 10), partition=partition)
    limits = "since = 2013-01-03T00:00:00Z\nuntil = 2013-01-06T00:00:00\nmax_offsets_per_trigger = 3\n[streams"
    for _ in range(2):
        (status,) = scene.run(OFFLINE.replace("[streams", limits), kind="offline")
        assert status.state is State.DONE
        assert scene.numbers("out") == [2, 3, 4, 12, 13, 14, 22, 23, 24]
    assert min(row["timestamp"] for row in scene.rows("out")) == datetime.datetime(2013, 1, 3, tzinfo=datetime.UTC)


def test_small_files_are_merged_for_every_reader(scene: Scene, send: Send, tmp_path: Path) -> None:
    text = OFFLINE.replace('path = "out"', 'path = "out"\npartition_by = ["partition"]')
    for turn in range(3):
        send(orders(10 * turn, 5), partition=turn % 2)
        scene.run(text, kind="offline")
    expected = [number for turn in range(3) for number in range(10 * turn, 10 * turn + 5)]
    assert scene.numbers("out") == expected
    assert len(list((tmp_path / "out" / "partition=0").glob("*.parquet"))) == 1
    # Spark itself reads the files that the sink's commit log names.
    assert sorted(row.number for row in scene.spark.read.parquet(str(tmp_path / "out")).collect()) == expected
    assert not (tmp_path / "out" / compaction.WORK).exists()


def test_a_merge_that_was_killed_is_finished_at_the_next_start(
    scene: Scene, send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(orders(0, 5))
    scene.run(OFFLINE, kind="offline")
    send(orders(5, 5))
    with monkeypatch.context() as patch:
        # As kill -9 leaves it after the journal: nothing is in its place yet.
        done: list[int] = []
        finish = compaction.finish_compaction
        patch.setattr(compaction, "finish_compaction", lambda *args: done or done.append(1) or finish(*args))
        scene.run(OFFLINE, kind="offline")
    assert (tmp_path / "out" / compaction.WORK / "journal").exists()
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    send(orders(10, 1))
    scene.run(OFFLINE, kind="offline")
    assert scene.numbers("out") == list(range(11))
    assert sorted(row.number for row in scene.spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(11))


MIRROR = """
kind = "mirror"
name = "{topic}.mirror"
checkpoint = "mirror.state"
groups = ["{topic}-app-.*"]
[source]
bootstrap_servers = "{source}"
pattern = "{topic}"
[trigger]
available_now = true
[target]
bootstrap_servers = "{target}"
topic_prefix = "copy."
"""


def commit(broker: ServedBroker, group: str, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: ServedBroker, group: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset)
    finally:
        consumer.close()


def test_a_mirror_carries_groups_with_translated_offsets(scene: Scene, send: Send) -> None:
    from confluent_kafka import TopicPartition

    source, target, topic = scene.source, scene.target, scene.topic
    send(orders(0, 10))
    # The copy begins at 0 where the original begins at 4: offsets differ by that.
    scene.admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result(30)
    commit(source, f"{topic}-app-1", topic, 7)
    commit(source, f"{topic}-other", topic, 7)
    (status,) = scene.run(MIRROR)
    assert (status.figures.records_in, status.figures.records_out, status.figures.lag) == (6, 6, 0)
    assert committed(target, f"{topic}-app-1", f"copy.{topic}") == 3
    assert committed(target, f"{topic}-other", f"copy.{topic}") < 0
    send(orders(10, 5), first_day=10)
    commit(source, f"{topic}-app-1", topic, 12)
    scene.run(MIRROR)
    assert committed(target, f"{topic}-app-1", f"copy.{topic}") == 8
    # A group that goes on at the target is not moved back.
    commit(target, f"{topic}-app-1", f"copy.{topic}", 11)
    scene.run(MIRROR)
    assert committed(target, f"{topic}-app-1", f"copy.{topic}") == 11
    found = consumed(target, f"copy.{topic}", 11)
    assert [json.loads(each.value())["number"] for each in found] == list(range(4, 15))


def test_a_mirror_carries_configurations_that_change(scene: Scene) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    there, topic = scene.there, scene.topic

    def config(client: Any, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        return {entry.name: entry.value for entry in client.describe_configs([resource])[resource].result(30).values()}

    topics = MirrorTopics(scene.job(MIRROR))  # type: ignore[arg-type]
    try:
        topics.ensure()
        topics.carry_configs()
        assert config(there, f"copy.{topic}")["segment.bytes"] == "1000000"
        changes = [
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("segment.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        scene.admin.incremental_alter_configs([resource])[resource].result(30)
        topics.carry_configs()
    finally:
        topics.close()
    changed = config(there, f"copy.{topic}")
    assert changed["cleanup.policy"] == "compact"
    assert changed["segment.bytes"] != "1000000"


def test_a_mirror_into_its_own_cluster_does_not_copy_its_copies(scene: Scene) -> None:
    """The cluster is known by its id: here it has another address."""
    address = scene.source.bootstrap_servers.replace("127.0.0.1", "localhost")
    text = MIRROR.replace('"{topic}"', '".*{topic}"')
    mirror = scene.job(text, target=address)
    topics = MirrorTopics(mirror)  # type: ignore[arg-type]
    try:
        with pytest.raises(ConfigurationError, match=rf"the same cluster, and .* its own copy 'copy\.{scene.topic}'"):
            topics.ensure()
    finally:
        topics.close()
    topics = MirrorTopics(scene.job(MIRROR, target=address))  # type: ignore[arg-type]
    try:
        topics.ensure()
        topics.ensure()
    finally:
        topics.close()


def test_a_mirror_finds_partitions_that_are_added_while_it_runs(scene: Scene, send: Send) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewPartitions

    text = MIRROR.replace("available_now = true", 'interval = "200 milliseconds"')
    send(orders(0, 3))
    with scene.started(text) as started:
        eventually(lambda: started.poll().figures.records_out == 3, within_s=600, what="three records")
        scene.admin.create_partitions([NewPartitions(scene.topic, 4)])[scene.topic].result(30)
        # A producer that has not seen the topic yet.
        later = Producer({"bootstrap.servers": scene.source.bootstrap_servers})
        for value in orders(3, 2):
            later.produce(scene.topic, value, partition=3)
        assert later.flush(30) == 0
        eventually(lambda: started.poll().figures.records_out == 5, within_s=600, what="two more")
    assert started.poll().state is State.STOPPED
    assert {each.partition() for each in consumed(scene.target, f"copy.{scene.topic}", 5)} == {0, 3}
