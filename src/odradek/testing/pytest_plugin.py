"""The pytest plugin that comes with the package: the fixture `kafka`, a broker in this process for blocking clients.

pytest loads this wherever Odradek is installed, so nothing is imported here until a test asks for the fixture.
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
