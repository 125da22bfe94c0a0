"""Partitions that move to other brokers keep their records, and nothing is left on the old ones (M1, M10)."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.cli import main
from odradek.testing import Cluster, eventually

pytestmark = pytest.mark.long

DEADLINE_S: Final = 120.0
Run = Callable[..., list[Any]]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    config = {"auto.leader.rebalance.enable": "false", "offsets.topic.replication.factor": "2"}
    with Cluster(brokers=3, data_dir=tmp_path, config=config) as cluster:
        yield cluster


@pytest.fixture
def run(three: Cluster) -> Run:
    def run(*arguments: str) -> list[Any]:
        command = [*arguments, "--json", "--bootstrap-server", three.bootstrap_servers]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, (result.output, result.exception)
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def placed(run: Run) -> list[tuple[list[int], list[int], int]]:
    """The replicas, ISR and leader of each partition of `t` in the metadata of some broker, which may be old."""
    return [(each["replicas"], each["isr"], each["leader"]) for each in run("partitions", "describe", "t")]


def are_on(run: Run, broker_ids: set[int]) -> bool:
    return all(set(replicas) == set(isr) == broker_ids for replicas, isr, _ in placed(run))


class BackgroundProducer(threading.Thread):
    """A producer that runs until it is stopped; `acknowledged` are its records, in order."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self.acknowledged: list[bytes] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1})
        self._is_over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce(self._topic, str(number).encode(), partition=0, on_delivery=self._delivered)
            self._producer.poll(0.001)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None
        self.acknowledged.append(message.value())

    def stop(self) -> list[bytes]:
        self._is_over.set()
        self.join()
        assert self._producer.flush(DEADLINE_S) == 0
        return self.acknowledged


def records(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), DEADLINE_S)
        assert messages, f"{len(found)} of {count}"
        found += [each.value() for each in messages]
    consumer.close()
    return found


def kept(data_dir: Path, broker_id: int, name: str) -> list[str]:
    """Return the logs of a topic on a broker's disk; deleted ones have another name until they are removed."""
    found = (path.name for path in (data_dir / f"broker-{broker_id}").glob(f"{name}-*"))
    return sorted(each for each in found if not each.endswith("-delete"))


def test_a_partition_moves_during_writes_and_its_old_replicas_are_deleted(three: Cluster, run: Run, tmp_path):
    """From brokers 0 and 1 to 2 alone: leader and follower change, and the number of replicas."""
    three.create_topic("t", assignment={0: [0, 1]})
    writing = BackgroundProducer(three.bootstrap_servers, "t")
    writing.start()
    eventually(lambda: len(writing.acknowledged) > 200, within_s=DEADLINE_S)
    run("partitions", "reassign", "--topic", "t", "--partition", "0", "--replicas", "2", "--wait")
    before = len(writing.acknowledged)
    eventually(lambda: len(writing.acknowledged) > before + 200, within_s=DEADLINE_S)
    written = writing.stop()
    assert run("partitions", "reassign", "--list") == []
    eventually(lambda: placed(run) == [([2], [2], 2)], within_s=DEADLINE_S)
    assert written == [str(number).encode() for number in range(len(written))]
    assert records(three.bootstrap_servers, "t", len(written)) == written
    for broker_id in (0, 1):
        eventually(lambda broker_id=broker_id: kept(tmp_path, broker_id, "t") == [], within_s=DEADLINE_S)
    assert kept(tmp_path, 2, "t") == ["t-0"]


def test_a_cancelled_reassignment_deletes_the_copies(three: Cluster, run: Run, tmp_path):
    three.create_topic("t", assignment={0: [0]})
    producer = Producer({"bootstrap.servers": three.bootstrap_servers})
    producer.produce("t", b"x", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    three.disconnect({2}, {0, 1})
    run("partitions", "reassign", "--topic", "t", "--partition", "0", "--replicas", "1,2")
    [moving] = run("partitions", "reassign", "--list")
    assert (moving["adding_replicas"], moving["removing_replicas"]) == ([1, 2], [0])
    run("partitions", "reassign", "--cancel", "--topic", "t")
    three.heal()
    eventually(lambda: run("partitions", "reassign", "--list") == [], within_s=DEADLINE_S)
    eventually(lambda: placed(run) == [([0], [0], 0)], within_s=DEADLINE_S)
    for broker_id in (1, 2):
        eventually(lambda broker_id=broker_id: kept(tmp_path, broker_id, "t") == [], within_s=DEADLINE_S)
    assert records(three.bootstrap_servers, "t", 1) == [b"x"]


def test_draining_a_broker_loses_no_records(three: Cluster, run: Run, tmp_path):
    """Groups' offsets too: internal topics move as well."""
    three.create_topic("t", assignment={number: [number % 3, (number + 1) % 3] for number in range(6)})
    producer = Producer({"bootstrap.servers": three.bootstrap_servers})
    for number in range(300):
        producer.produce("t", str(number).encode(), partition=number % 6)
    assert producer.flush(DEADLINE_S) == 0
    settings = {"bootstrap.servers": three.bootstrap_servers, "group.id": "g"}
    committing = Consumer(settings)
    committing.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    committing.close()
    planned = run("brokers", "drain", "1", "--dry-run")
    lines = run("brokers", "drain", "1", "--at-once", "2")
    assert lines[-1] == {"broker_id": 1, "replica_count": 0}
    moved = [line for line in lines[:-1] if line["state"] == "moved"]
    assert {(each["topic"], each["partition"]) for each in moved} >= {("t", number) for number in (0, 1, 3, 4)}
    assert len(moved) == len(planned)
    eventually(lambda: are_on(run, {0, 2}), within_s=DEADLINE_S)
    assert run("brokers", "drain", "1") == [{"broker_id": 1, "replica_count": 0}], "again, there is nothing to do"
    eventually(lambda: kept(tmp_path, 1, "t") == [], within_s=DEADLINE_S)
    three.kill(1)
    for number in range(6):
        consumer = Consumer(settings | {"group.id": "readers"})
        consumer.assign([TopicPartition("t", number, 0)])
        found = consumer.consume(50, DEADLINE_S)
        assert [int(each.value()) for each in found] == list(range(number, 300, 6))
        consumer.close()
    again = Consumer(settings)
    [committed] = again.committed([TopicPartition("t", 0)], DEADLINE_S)
    again.close()
    assert committed.offset == 7


def test_a_dead_broker_is_drained_from_other_replicas(three: Cluster, run: Run):
    three.create_topic("t", assignment={0: [1, 2], 1: [2, 1]})
    three.kill(1)
    eventually(lambda: [each["is_fenced"] for each in run("brokers", "list")].count(False) == 2, within_s=DEADLINE_S)
    assert run("brokers", "drain", "1")[-1] == {"broker_id": 1, "replica_count": 0}
    eventually(lambda: are_on(run, {0, 2}), within_s=DEADLINE_S)
