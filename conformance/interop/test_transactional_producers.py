"""Transactional producers of existing clients, on one broker and on three."""

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from bench.peers.franz_go_client import franz_go
from conformance.interop.existing_clients import DEADLINE_S
from conformance.interop.transactional_clients import CLIENTS, check_ends, check_fencing, committed, create
from odradek.testing import Cluster

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "three brokers"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with Cluster(brokers=request.param) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def created(servers: str) -> str:
    topic = f"t-{uuid.uuid4().hex}"
    create(servers, topic)
    return topic


@pytest.mark.parametrize("name", CLIENTS)
def test_a_transaction_is_read_whole_or_not_at_all_and_its_offsets_with_it(
    servers: str, created: str, name: str
) -> None:
    check_ends(servers, created, CLIENTS[name])


@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_producer_of_the_id_fences_the_first_and_aborts_its_transaction(
    servers: str, created: str, name: str
) -> None:
    check_fencing(servers, created, CLIENTS[name])


@pytest.mark.needs("franz-go")
def test_transactions_of_franz_go_are_read_whole_or_not_at_all(servers: str, created: str) -> None:
    for end, values in (("commit", ("a", "b")), ("abort", ("c", "d")), ("commit", ("e",))):
        command = [franz_go(), "-X", f"bootstrap.servers={servers}", "transact", created, end, created, *values]
        subprocess.run(command, timeout=DEADLINE_S, check=True, capture_output=True)
    assert committed(servers, created, 3) == ["a", "b", "e"]
