"""Shared fixtures of the Spark tests: one session, and a cluster to read from."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek.model import UnavailableError
from odradek.testing.servers.odradek_process import ServedBroker


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark, started once, with the JVM's connector on its class path where it can be had.

    Its class archive makes the next run start faster; on a machine that makes one run, it would only take its time.
    """
    from bench.peers.spark_connector import connector_jars
    from odradek.spark.session import local_session

    settings = {}
    with suppress(UnavailableError):
        settings["spark.jars"] = ",".join(map(str, connector_jars()))
    session = local_session(
        "tests", threads=2, short_lived=True, keep_classes="ODRADEK_REQUIRE" not in os.environ, settings=settings
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker as users run it, in a process of its own; it keeps records however old they say they are."""
    options = {
        "log.retention.ms": "-1",
        "num.partitions": "4",
        "offsets.topic.num.partitions": "4",
        "transaction.partition.verification.enable": "false",
    }
    with ServedBroker(tmp_path_factory.mktemp("spark") / "data", options=options) as broker:
        yield broker


@pytest.fixture
def bootstrap(served: ServedBroker) -> str:
    return served.bootstrap_servers


@pytest.fixture(scope="session")
def producer(served: ServedBroker) -> Any:
    """librdkafka's: what the tests read was not written by us."""
    from confluent_kafka import Producer

    settings = {"linger.ms": 1, "queue.buffering.max.messages": 1_000_000}
    return Producer({"bootstrap.servers": served.bootstrap_servers, **settings})


@pytest.fixture(scope="session")
def admin(served: ServedBroker) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": served.bootstrap_servers})


@pytest.fixture
def topic(admin: Any) -> str:
    """A new topic of four partitions."""
    from confluent_kafka.admin import NewTopic

    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 4)])[name].result(30)
    return name


@pytest.fixture
def produce(producer: Any) -> Callable[..., None]:
    """Writes (partition, key, value) and returns when all is there."""

    def send(topic: str, records: list[tuple[int, bytes | None, bytes | None]], **more: Any) -> None:
        for partition, key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition, **more)
        assert producer.flush(30) == 0

    return send
