"""A cluster whose groups the lab reads."""

from collections.abc import Iterator

import pytest

from odradek.testing import Cluster


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """The address of a broker."""
    with Cluster(brokers=1, config={"group.rebalance.journal.enable": "true"}) as cluster:
        yield cluster.bootstrap_servers
