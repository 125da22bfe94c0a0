"""Shared fixtures of the pipeline tests: one Spark, a cluster to read and a cluster to mirror to."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.servers.odradek_process import ServedBroker
from tests.pipelines.scene import Scene

OPTIONS = {"log.retention.ms": "-1", "offsets.topic.num.partitions": "4", "num.partitions": "3"}
"""Records keep their own timestamps here, and those are years old."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session of the tests of Spark, if those have started one."""
    from odradek.spark.session import local_session

    session = local_session("tests", threads=2, short_lived=True, keep_classes="ODRADEK_REQUIRE" not in os.environ)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("source") / "data", options=OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("target") / "data", options=OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="session")
def admin(source: ServedBroker) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": source.bootstrap_servers})


@pytest.fixture(scope="session")
def producer(source: ServedBroker) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": source.bootstrap_servers, "linger.ms": 1})


@pytest.fixture
def topic(admin: Any) -> str:
    """A new topic of three partitions."""
    from confluent_kafka.admin import NewTopic

    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 3, config={"retention.ms": "-1", "segment.bytes": "1000000"})])[name].result(30)
    return name


@pytest.fixture
def scene(spark: Any, source: ServedBroker, target: ServedBroker, admin: Any, topic: str, tmp_path: Path) -> Scene:
    return Scene(spark, source, target, admin, topic, tmp_path)
