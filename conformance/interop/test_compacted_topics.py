"""Compacted topics of a running broker, and the groups in one of them, read by existing clients. M1."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from odradek.cli import main
from odradek.model import TopicPartition
from odradek.testing import Cluster
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
OPTIONS = {
    **BROKER_OPTIONS,
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "offsets.topic.segment.bytes": "4000",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker that compacts soon."""
    broker = ServedBroker(tmp_path / "data", options=OPTIONS)
    broker.start()
    yield broker
    broker.stop()


def size_of(broker: ServedBroker, partition: str) -> int:
    folder = Path(broker.data_dir) / partition
    total = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # another one has just taken its place
            total += path.stat().st_size
    return total


def wait_until_small(broker: ServedBroker, partition: str, limit: int) -> None:
    eventually(lambda: size_of(broker, partition) <= limit, within_s=DEADLINE_S, what=f"{partition} is compacted")


def write_keys(servers: str, topic: str, codec: str) -> dict[bytes, bytes]:
    """Write twenty keys repeatedly, the last of them deleted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 5, "enable.idempotence": True}
    )
    last = {}
    for number in range(4000):
        key, value = b"%d" % (number % 20), b"%d " % number * 20
        producer.produce(topic, value, key)
        last[key] = value
        if number % 50 == 49:
            producer.flush(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0
    return last


def is_compacted(broker: ServedBroker, topic: str) -> bool:
    """Whether the cleaner is through with all but the active segment of partition 0, and so at rest."""
    first_offsets = [int(path.stem) for path in (Path(broker.data_dir) / f"{topic}-0").glob("*.log")]
    checkpoint = Path(broker.data_dir) / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return len(first_offsets) > 1 and f"{topic} 0 {max(first_offsets)}" in lines


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_client_gets_the_last_value_of_each_key_of_a_compacted_topic(compacting: ServedBroker, codec: str) -> None:
    servers = compacting.bootstrap_servers
    config = {"cleanup.policy": "compact", "segment.bytes": "20000", "file.delete.delay.ms": "0"}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(DEADLINE_S)
    last = write_keys(servers, "t", codec)
    eventually(lambda: is_compacted(compacting, "t"), within_s=DEADLINE_S, what="compaction")
    assert size_of(compacting, "t-0") <= 45_000
    ours = read_to_the_end(servers, "t")
    assert {message.key(): message.value() for message in ours} == last
    assert len(ours) < 2000
    assert len({message.offset() for message in ours}) == len(ours)
    for client in CLIENTS:
        if client.name != "kcat":
            read = client.read(servers, "t", 1, len(ours))
            assert [(message.key, message.value) for message in read] == [(each.key(), each.value()) for each in ours]
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce("t", b"after", b"0")
    assert producer.flush(DEADLINE_S) == 0
    compacting.kill()
    compacting.start()
    assert {each.key(): each.value() for each in read_to_the_end(servers, "t")} == {**last, b"0": b"after"}


def read_to_the_end(servers: str, topic: str) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append(message)


def test_compacting_consumer_offsets_does_not_change_groups(compacting: ServedBroker) -> None:
    servers = compacting.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
    consumers = [
        confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
        for group in ("a", "b")
    ]
    for number in range(400):
        for factor, consumer in enumerate(consumers, 1):
            place = confluent_kafka.TopicPartition("t", 0, number * factor, metadata=f"{number}")
            consumer.commit(offsets=[place], asynchronous=False)
    wait_until_small(compacting, "__consumer_offsets-0", 6_000)
    compacting.kill()
    compacting.start()
    for factor, consumer in enumerate(consumers, 1):
        (found,) = consumer.committed([confluent_kafka.TopicPartition("t", 0)], timeout=DEADLINE_S)
        assert (found.offset, found.metadata) == (399 * factor, "399")
        consumer.close()


def test_ctrl_c_during_a_compaction_leaves_the_log_unchanged(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path / "data", options={**OPTIONS, "log.cleaner.io.max.bytes.per.second": "50000"})
    folder = tmp_path / "data" / "slow-0"
    configs = {"cleanup.policy": "compact", "segment.bytes": "200000"}
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("slow", 1, 1, config=configs)])["slow"].result(DEADLINE_S)
        last = write_keys(broker.bootstrap_servers, "slow", "none")
        eventually(lambda: list(folder.glob("*.cleaned")), within_s=DEADLINE_S, what="a compaction that writes")
        assert broker.stop(signal.SIGINT) == 0
        assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap")]
        assert CliRunner().invoke(main, ["log", "verify", str(folder)]).exit_code == 0
        broker.start()
        assert {each.key(): each.value() for each in read_to_the_end(broker.bootstrap_servers, "slow")} == last
    assert "Traceback" not in broker.errors.read_text()


def test_a_reader_gets_on_all_the_time_while_segments_on_a_disk_are_replaced() -> None:
    options = {"log.cleaner.backoff.ms": 1, "log.flush.interval.messages": 1}
    compact = {"cleanup.policy": "compact", "segment.bytes": 200, "min.cleanable.dirty.ratio": 0.01}
    keys, changes, passes = 7, 400, 0
    with Cluster(config=options) as cluster, cluster.admin() as admin:
        cluster.create_topic("table", config=compact)
        single = {"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1}
        producer = confluent_kafka.Producer(single)
        for number in range(changes):
            producer.produce("table", b"%d" % number, b"%d" % (number % keys))
        assert producer.flush(DEADLINE_S) == 0
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "fetch.message.max.bytes": 200}
        consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
        table: dict[bytes | None, bytes | None] = {}
        place, is_clean = confluent_kafka.TopicPartition("table", 0, 0), False
        while not is_clean or passes < 2:
            is_clean = admin.describe_log_dirs(0)[0].sizes[TopicPartition("table", 0)] < 2000
            consumer.assign([place])
            table.clear()
            while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
                table[message.key()] = message.value()
            assert message is not None, "the reader hangs"
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            assert table == {b"%d" % (number % keys): b"%d" % number for number in range(changes - keys, changes)}
            passes += 1
        consumer.close()
