"""Kafka and our broker for all tests that ask both, started when the first of them comes."""

from collections.abc import Iterator

import pytest

from conformance.peers.compare_with_kafka import BrokerPair
from conformance.peers.kafka_tools import kafka_tools


@pytest.fixture(scope="session", autouse=True)
def _tools_end_with_the_session() -> Iterator[None]:
    yield
    if kafka_tools.cache_info().currsize:
        kafka_tools().stop()
        kafka_tools.cache_clear()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """Both, over empty directories; every test takes topics of its own."""
    both = BrokerPair(tmp_path_factory.mktemp("pair"))
    both.start()
    yield both
    both.stop()
    errors = both.ours.errors.read_text()
    assert "Traceback" not in errors, errors
