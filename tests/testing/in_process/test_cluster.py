"""A cluster in this process, used by blocking clients that nobody here wrote."""

import asyncio
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from odradek.model import ConfigurationError
from odradek.testing import Cluster

DEADLINE_S = 30.0


def write(servers: str, topic: str, *values: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


def read(servers: str, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return [message.value().decode() for message in found]


def test_the_fixture_kafka_is_a_broker_for_blocking_clients(kafka: Cluster):
    write(kafka.bootstrap_servers, "greetings", "hello", "world")
    assert read(kafka.bootstrap_servers, "greetings", 2) == ["hello", "world"]


def test_a_broker_that_is_killed_comes_back_on_its_port_with_what_was_acknowledged():
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        write(servers, "kept", "one", "two")
        cluster.kill(0)
        cluster.restart(0)
        assert cluster.bootstrap_servers == servers
        write(servers, "kept", "three")
        assert read(servers, "kept", 3) == ["one", "two", "three"]


def test_a_restart_of_a_running_broker_stops_it_first():
    with Cluster() as cluster:
        write(cluster.bootstrap_servers, "kept", "one")
        cluster.restart(0)
        assert read(cluster.bootstrap_servers, "kept", 1) == ["one"]


def test_topics_in_a_given_directory_are_there_for_the_next_cluster(tmp_path: Path):
    with Cluster(data_dir=tmp_path, config={"num.partitions": "2"}) as cluster:
        write(cluster.bootstrap_servers, "kept", "one")
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=DEADLINE_S).topics
        assert len(topics["kept"].partitions) == 2
    with Cluster(data_dir=tmp_path) as cluster:
        assert read(cluster.bootstrap_servers, "kept", 1) == ["one"]


async def _use() -> str:
    async with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        await asyncio.to_thread(write, servers, "t", "x")
        return servers


def test_async_with_keeps_the_callers_loop_free():
    assert asyncio.run(_use()).startswith("127.0.0.1:")


def test_a_cluster_of_no_brokers_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="brokers must be at least 1, not 0"):
        Cluster(brokers=0)


def test_an_unknown_key_is_refused_and_leaves_no_thread_behind():
    with pytest.raises(ConfigurationError, match=r"log\.retention\.ms"), Cluster(config={"log.retentoin.ms": "1"}):
        pass
