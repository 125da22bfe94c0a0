"""The package's pytest plugin: the fixtures `kafka`, `secure_kafka` and `kafka_cluster`, brokers in this process.

pytest loads this wherever Odradek is installed, so nothing is imported until a test requests a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.in_process.cluster import Cluster


@pytest.fixture(scope="session")
def kafka() -> "Iterator[Cluster]":
    """Start one broker for the whole session; any Kafka client connects to `kafka.bootstrap_servers`."""
    from odradek.testing.in_process.cluster import Cluster

    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secure_kafka() -> "Iterator[Cluster]":
    """Start one broker with SASL_SSL for the whole session, and the users alice and bob; see `Cluster.settings`."""
    from odradek.testing.in_process.cluster import Cluster

    with Cluster(security="sasl_ssl", users={"alice": "alice-secret", "bob": "bob-secret"}) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster() -> "Iterator[Cluster]":
    """Start three brokers for this test alone, which can be killed, paused and cut off from each other."""
    from odradek.testing.in_process.cluster import Cluster

    with Cluster(brokers=3) as cluster:
        yield cluster
