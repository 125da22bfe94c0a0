"""The pytest plugin that comes with the package: the fixtures `kafka` and `kafka_cluster`, brokers in this process.

pytest loads this wherever Odradek is installed, so nothing is imported here until a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster


@pytest.fixture(scope="session")
def kafka() -> "Iterator[Cluster]":
    """One broker for the whole session; `kafka.bootstrap_servers` is what any Kafka client takes."""
    from odradek.testing.cluster import Cluster

    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster() -> "Iterator[Cluster]":
    """Three brokers for this test alone, to be killed, paused and cut off from each other."""
    from odradek.testing.cluster import Cluster

    with Cluster(brokers=3) as cluster:
        yield cluster
