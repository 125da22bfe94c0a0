"""Kafka's own transactional producer, consumer and copier on our broker, with both protocols of transactions."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

from conformance.interop.transactional_clients import (
    CLIENTS,
    PARTITIONS,
    check_ends,
    check_fencing,
    committed,
    committed_offset,
    create,
)
from conformance.peers import kafka_tools
from conformance.peers.java_producers import JavaError, JavaProcess, java_producers
from odradek.clients.blocking import Consumer, Producer
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

TOOLS: Final = "org.apache.kafka.tools"
OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Scene(NamedTuple):
    version: int
    servers: str
    java: JavaProcess


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker with this `transaction.version`."""
    directory = tmp_path_factory.mktemp("transactions")
    with ServedBroker(directory / "data", options=OPTIONS) as broker:
        servers = broker.bootstrap_servers
        if request.param == 1:
            feature = ("--feature", "transaction.version=1")
            kafka_tools.tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", servers, "downgrade", *feature)
        with java_producers(servers, directory / "producers.err") as java:
            yield Scene(request.param, servers, java)
    assert "Traceback" not in broker.errors.read_text()


def read_by_us(servers: str, topic: str) -> list[str]:
    places = [(topic, number) for number in range(PARTITIONS)]
    found: list[str] = []
    settings: Any = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=servers, **settings) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [(record.value or b"").decode() for record in consumer.poll(1_000)]
    return sorted(found)


def read_by_java(servers: str, topic: str, count: int, level: str = "read_committed") -> list[str]:
    """Return what Kafka's console consumer reads, which ends after `count` records, or when no more come."""
    arguments = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000")
    level_arguments = ("--isolation-level", level)
    printed = kafka_tools.tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", servers, *arguments, *level_arguments
    )
    return sorted(line for line in printed.splitlines() if line[1:2] == ".")


def test_a_transaction_is_read_whole_or_not_at_all_and_its_offsets_with_it(scene: Scene) -> None:
    topic = "ends"
    create(scene.servers, topic)
    check_ends(scene.servers, topic, scene.java.make)
    values = committed(scene.servers, topic, 10)
    assert read_by_us(scene.servers, topic) == values
    assert read_by_java(scene.servers, topic, 10) == values
    assert len(read_by_java(scene.servers, topic, 20, "read_uncommitted")) == 20


def test_a_second_producer_of_the_id_fences_the_first_and_aborts_its_transaction(scene: Scene) -> None:
    create(scene.servers, "fenced")
    check_fencing(scene.servers, "fenced", scene.java.make)
    assert read_by_us(scene.servers, "fenced") == ["heir"]


@pytest.mark.parametrize("other", CLIENTS)
def test_producers_of_other_libraries_and_of_java_fence_each_other(scene: Scene, other: str) -> None:
    topic = f"fenced.by.{other}"
    create(scene.servers, topic)
    first = scene.java.make(scene.servers, topic)
    first.begin()
    first.write(topic, "zombie")
    second = CLIENTS[other](scene.servers, topic)
    second.begin()
    second.write(topic, "zombie too")
    with pytest.raises(JavaError, match=r"ProducerFencedException|InvalidProducerEpochException"):
        first.commit()
    third = scene.java.make(scene.servers, topic)
    with pytest.raises(second.fenced):
        second.commit()
    with suppress(*second.fenced):
        second.close()
    third.begin()
    third.write(topic, "heir")
    third.commit()
    third.close()
    assert committed(scene.servers, topic, 1) == ["heir"]


@pytest.mark.parametrize("mode", ["assigned", "group"])
def test_the_copier_of_kafkas_system_tests_copies_each_record_once_though_it_aborts_at_random(
    scene: Scene, mode: str
) -> None:
    source, target = f"source.{mode}", f"target.{mode}"
    create(scene.servers, source)
    create(scene.servers, target)
    numbers = range(PARTITIONS) if mode == "group" else [0]
    values = [f"{number}.{each}" for number in numbers for each in range(60)]
    with Producer(scene.servers) as producer:
        for value in values:
            producer.send(source, value.encode(), partition=int(value[0]))
    arguments = ["--broker-list", scene.servers, "--input-topic", source, "--input-partition", "0"]
    arguments += ["--output-topic", target, "--transactional-id", target, "--consumer-group", target]
    arguments += ["--transaction-size", "7", "--enable-random-aborts", "--use-group-metadata"]
    arguments += ["--group-mode"] if mode == "group" else []
    kafka_tools.tool(f"{TOOLS}.TransactionalMessageCopier", *arguments)
    assert committed(scene.servers, target, len(values)) == sorted(values)
    assert read_by_us(scene.servers, target) == sorted(values)
    assert committed_offset(scene.servers, source, target) == 60
