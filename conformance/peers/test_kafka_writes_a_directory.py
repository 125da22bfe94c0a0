"""A directory that Kafka wrote: our tools read it, our broker goes on with it, and Kafka goes on after that (M1).

Kafka's transactions, compaction, rolled segments, producers and groups are in it. It is looked at when Kafka was
stopped and when it was killed; then it is adopted and served by ours.
"""

import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.kafka_peer import KafkaBroker
from conformance.peers.dumps import as_row, as_shown, kafkas_lines, our_lines, our_rows, segment_files
from odradek.cli import main
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.timeout(900)]

DEADLINE_S: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OPTIONS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.initial.task.delay.ms": "100",
}
SMALL: Final = {"segment.bytes": str(1 << 20), "index.interval.bytes": "500"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(CODECS, SMALL),
    "transactions": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "min.compaction.lag.ms": "0",
    },
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}


class Written(NamedTuple):
    """Kafka, stopped, over a directory that has something of everything; the records that it served."""

    kafka: KafkaBroker
    records: "Records"
    committed: "Records"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka") / "data", options=OPTIONS, heap="384M", short_lived=True)
    with broker:
        fill(broker.bootstrap_servers)
        eventually(lambda: is_compacted(broker), within_s=DEADLINE_S, what="compaction")
        found = [everything(broker.bootstrap_servers, committed=committed) for committed in (False, True)]
        broker.stop()
        shutil.copytree(broker.data_dir, as_kafka_left_it(broker))
        yield Written(broker, *found)


def as_kafka_left_it(kafka: KafkaBroker) -> Path:
    """A copy of the directory from before any broker of ours was in it."""
    return kafka.data_dir.with_name("kafkas")


def fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(
        [NewTopic(name, 1, 1, config=dict(each)) for name, each in TOPICS.items()]
    ).values():
        future.result(DEADLINE_S)
    for codec in CODECS:
        settings = {"compression.type": codec, "batch.size": 20_000, "linger.ms": 5, "enable.idempotence": True}
        produce(servers, codec, 1500, **settings)
    produce(servers, "stamped", 20)
    transact(servers, "first", commit=True)
    transact(servers, "second", commit=False)
    transact(servers, "first", commit=True)
    produce(servers, "compacted", 400, keys=7)
    commit_offsets(servers)


def is_compacted(kafka: KafkaBroker) -> bool:
    """Whether the cleaner has been there. A segment that is a second old is rolled by the next record."""
    produce(kafka.bootstrap_servers, "compacted", 3, keys=3)
    return any((kafka.data_dir / "compacted-0").glob("*.deleted"))


def produce(servers: str, topic: str, count: int, *, keys: int | None = None, **settings: Any) -> None:
    producer, chance = confluent_kafka.Producer({"bootstrap.servers": servers, **settings}), random.Random(count)
    for number in range(count):
        key = None if number % 10 == 9 and keys is None else b"key-%d" % (number % (keys or 100))
        value = None if number % 50 == 49 else b"value-%d-" % number + chance.randbytes(number % 1200).hex().encode()
        producer.produce(topic, value, key, headers=[("h", b"%d" % number)] if number % 3 == 0 else None)
    assert producer.flush(DEADLINE_S) == 0


def transact(servers: str, name: str, *, commit: bool) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("transactions", b"%s-%d" % (b"kept" if commit else b"dropped", number), b"k")
    producer.flush(DEADLINE_S)
    (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)


def commit_offsets(servers: str) -> None:
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe(["gzip"])
        assert len(consumer.consume(100, timeout=DEADLINE_S)) == 100
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir() and path.name != "__cluster_metadata-0")


def verify(directory: Path) -> list[Mapping[str, Any]]:
    result = CliRunner().invoke(main, ["log", "verify", "--json", "--records", str(directory)])
    rows = map(json.loads, result.output.splitlines())
    # Kafka's quorum leaves the time index of its own log unfinished.
    return [row for row in rows if row["type"] == "finding" and "__cluster_metadata-0" not in row["path"]]


def test_our_tools_read_what_kafka_wrote(written: Written):
    """M1"""
    directory = as_kafka_left_it(written.kafka)
    assert verify(directory) == []
    files = segment_files(folders(directory))
    kafkas, ours, rows = (
        kafkas_lines(files, "--print-data-log"),
        our_lines(files, "--records"),
        our_rows(files, "--records"),
    )
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
    for file in files:
        if not file.parent.name.startswith("__"):
            assert ours[file] == kafkas[file], file
            theirs = [as_row(file, line) for line in kafkas[file]]
            mine = [as_shown(row) for row in rows[file]]
            assert [{name: row[name] for name in their} for row, their in zip(mine, theirs, strict=True)] == theirs


Records = dict[str, list[tuple[int, bytes | None, bytes | None]]]


def everything(servers: str, *, committed: bool = False) -> Records:
    """Offset, key and value of every record of every topic, in order; of a compacted one, each key's last."""
    level = "read_committed" if committed else "read_uncommitted"
    settings = {
        "bootstrap.servers": servers,
        "group.id": "nobody",
        "isolation.level": level,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    found: Records = {topic: [] for topic in TOPICS}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in TOPICS])
        ended: set[str] = set()
        while ended != set(TOPICS):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"no end of {set(TOPICS) - ended}"
            if message.error() is None:
                found[message.topic()].append((message.offset(), message.key(), message.value()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.topic())
    finally:
        consumer.close()
    found["compacted"] = sorted({key: (offset, key, value) for offset, key, value in found["compacted"]}.values())
    return found


def committed_offset(servers: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    try:
        (place,) = consumer.committed([confluent_kafka.TopicPartition("gzip", 0)], timeout=DEADLINE_S)
        return int(place.offset)
    finally:
        consumer.close()


def append(servers: str, mark: str) -> None:
    """Records that say who wrote them, in every topic, by an idempotent producer."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for topic in TOPICS:
        for number in range(5):
            producer.produce(topic, f"{mark}-{number}", mark)
    assert producer.flush(DEADLINE_S) == 0


def values_of(records: list[tuple[int, bytes | None, bytes | None]], mark: str) -> list[bytes | None]:
    return [value for _, key, value in records if key == mark.encode()]


def tree(directory: Path) -> str:
    return f"sqlite:///{directory.parent}/metadata.sqlite"


def adopt(directory: Path) -> str:
    result = CliRunner().invoke(
        main, ["metadata", "adopt", "--metadata", tree(directory), str(directory)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_our_broker_goes_on_with_kafka_s_directory_and_kafka_after_that(written: Written):
    """M1: both ways, stopped and killed.

    In the end Kafka's file of leader epochs lacks two. When it was killed and comes back, its controller knows no later
    epoch than the fourth; as that one's leader begins at the end of the log, the file forgets what began before, and a
    second later it is replaced by the next. The batches keep their epochs, and Kafka's own recovery goes by them.
    """
    kafka = written.kafka
    ours = ServedBroker(kafka.data_dir, options={"broker.id": "0"}, metadata=tree(kafka.data_dir))
    assert "compacted: 1 partition cleanup.policy=compact" in adopt(kafka.data_dir)

    ours.start()
    assert everything(ours.bootstrap_servers) == written.records
    assert everything(ours.bootstrap_servers, committed=True) == written.committed
    assert committed_offset(ours.bootstrap_servers) == 100
    append(ours.bootstrap_servers, "ours")
    commit_offsets(ours.bootstrap_servers)
    with pytest.raises(RuntimeError, match="Kafka did not start"):
        kafka.start()
    # The error has the log's last 4,000 characters, and the messages of the shutdown may fill them.
    assert "Failed to acquire lock" in kafka.errors.read_text()
    both = everything(ours.bootstrap_servers)
    assert ours.stop() == 0
    assert verify(kafka.data_dir) == []

    kafka.start()
    assert everything(kafka.bootstrap_servers) == both
    assert committed_offset(kafka.bootstrap_servers) == 200
    append(kafka.bootstrap_servers, "kafka again")
    with pytest.raises(RuntimeError, match=rf"in use by process {kafka.pid}"):
        ours.start()
    kafka.kill()
    assert not (kafka.data_dir / ".kafka_cleanshutdown").exists()
    assert [finding for finding in verify(kafka.data_dir) if finding["is_damage"]] == []
    assert "known already" in adopt(kafka.data_dir)

    ours.start()
    append(ours.bootstrap_servers, "ours again")
    together = everything(ours.bootstrap_servers)
    for topic in TOPICS.keys() - {"compacted"}:
        for mark in ("ours", "kafka again", "ours again"):
            assert values_of(together[topic], mark) == [b"%s-%d" % (mark.encode(), number) for number in range(5)]
    ours.kill()

    kafka.start()
    assert everything(kafka.bootstrap_servers) == together
    append(kafka.bootstrap_servers, "kafka at last")
    assert len(values_of(everything(kafka.bootstrap_servers)["zstd"], "kafka at last")) == 5
    kafka.stop()
    findings = verify(kafka.data_dir)
    assert {Path(finding["path"]).name for finding in findings} <= {"leader-epoch-checkpoint"}
    # Which epochs they are depends on how often Kafka fenced itself: it does where the machine is busy.
    for finding in findings:
        told = re.search(r" is of leader epoch (\d+), and its batch is of (\d+)$", finding["reason"])
        assert told, finding
        assert int(told[1]) < int(told[2])

    assert "known already" in adopt(kafka.data_dir)
    ours.start()
    append(ours.bootstrap_servers, "ours at last")
    assert ours.stop() == 0
    assert {Path(finding["path"]).name for finding in verify(kafka.data_dir)} <= {"leader-epoch-checkpoint"}
