"""What the tests of Spark share: one session for all of them, and a cluster to read from."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark, started once; its class archive stays in the cache, so that the next run starts faster."""
    from odradek.spark.session import local_session

    session = local_session("tests", threads=2, short_lived=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[Any]:
    """librdkafka's own mock of a Kafka cluster, two brokers in this process: a peer that nobody here wrote."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2, "linger.ms": 1})
    yield producer
    producer.flush()


@pytest.fixture(scope="session")
def bootstrap(mock_cluster: Any) -> str:
    brokers = mock_cluster.list_topics(timeout=30).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


@pytest.fixture
def topic(mock_cluster: Any) -> str:
    """A new topic of four partitions."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    mock_cluster.list_topics(name, timeout=30)
    return name


@pytest.fixture
def produce(mock_cluster: Any) -> Callable[..., None]:
    """Writes (partition, key, value, …) and returns when all is there."""

    def send(topic: str, records: list[tuple[int, bytes | None, bytes | None]], **more: Any) -> None:
        for partition, key, value in records:
            mock_cluster.produce(topic, key=key, value=value, partition=partition, **more)
        assert mock_cluster.flush(30) == 0

    return send
