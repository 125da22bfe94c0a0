"""`odradek transactions` (M10): what the coordinators and partitions of three brokers know, and what ends it."""

import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.clients import Admin
from odradek.clients.admin.transactions import TransactionDescription
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import Cluster
from odradek.testing.conditions import eventually

TOPIC = "accounts"
CONFIG = {"transaction.state.log.num.partitions": "3", "transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, config=CONFIG) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        yield cluster


@pytest.fixture
def transactional_id() -> str:
    return f"ledger-{uuid.uuid4().hex[:8]}"


def run(cluster: Cluster, *arguments: str, fails: int = 0) -> Result:
    command = ["transactions", *arguments, "--bootstrap-server", cluster.bootstrap_servers]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == fails, (result.output, result.exception)
    return result


def objects(cluster: Cluster, *arguments: str) -> Sequence[Any]:
    return [json.loads(line) for line in run(cluster, *arguments, "--json").stdout.splitlines()]


@pytest.fixture
def producer(cluster: Cluster, transactional_id: str) -> confluent_kafka.Producer:
    """A producer with an open transaction of one record in each partition."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(2):
        producer.produce(TOPIC, b"v", partition=number)
    producer.flush(60)
    return producer


def test_an_open_transaction_is_listed_and_described(
    cluster: Cluster, producer: confluent_kafka.Producer, transactional_id: str
) -> None:
    (listed,) = [each for each in objects(cluster, "list") if each["transactional_id"] == transactional_id]
    assert listed["state"] == "Ongoing"
    assert transactional_id in run(cluster, "list", "--state", "Ongoing").stdout
    assert transactional_id not in run(cluster, "list", "--state", "Empty").stdout
    (described,) = objects(cluster, "describe", transactional_id)
    assert described["producer_id"] == listed["producer_id"]
    assert sorted(described["partitions"]) == [[TOPIC, 0], [TOPIC, 1]]
    assert f"{TOPIC}-0, {TOPIC}-1" in run(cluster, "describe", transactional_id).stdout
    producer.commit_transaction(60)

    def is_complete() -> bool:
        return bool(objects(cluster, "describe", transactional_id)[0]["state"] == "CompleteCommit")

    eventually(is_complete)


def test_a_wrong_state_or_transactional_id_is_named(cluster: Cluster) -> None:
    assert "'sleeping' is not one of" in run(cluster, "list", "--state", "Sleeping", fails=2).output.lower()
    for command in ("describe", "abort"):
        assert "there is no transactional id 'nobody'" in run(cluster, command, "nobody", fails=1).output


def test_abort_ends_a_transaction_and_fences_its_producer(
    cluster: Cluster, producer: confluent_kafka.Producer, transactional_id: str
) -> None:
    assert "aborted its open transaction" in run(cluster, "abort", transactional_id).stdout
    with pytest.raises(confluent_kafka.KafkaException) as refusal:
        producer.commit_transaction(60)
    assert refusal.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
    )
    assert "it had no open transaction" in run(cluster, "abort", transactional_id).stdout


def test_prepared_shows_the_open_transactions_that_never_expire(cluster: Cluster, transactional_id: str) -> None:
    async def open_transaction() -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.terminate_transaction(transactional_id)
            (described,) = (await admin.describe_transactions([transactional_id])).values()
        assert isinstance(described, TransactionDescription)
        servers = cluster.bootstrap_servers.split(",")[described.coordinator_id]
        with BlockingWireClient(servers) as client:
            made = client.ask(
                ApiKey.INIT_PRODUCER_ID,
                {
                    "transactional_id": transactional_id, "transaction_timeout": 60_000, "producer_id": -1,
                    "producer_epoch": -1, "enable2_pc": True, "keep_prepared_txn": False,
                },
            )  # fmt: skip
            client.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                {
                    "v3_and_below_transactional_id": transactional_id, "v3_and_below_producer_id": made.producer_id,
                    "v3_and_below_producer_epoch": made.producer_epoch,
                    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
                },
                3,
            )  # fmt: skip

    assert transactional_id not in run(cluster, "prepared").stdout
    asyncio.run(open_transaction())
    (found,) = [each for each in objects(cluster, "prepared") if each["transactional_id"] == transactional_id]
    assert found["timeout_ms"] == 2**31 - 1
    run(cluster, "abort", transactional_id)
    assert transactional_id not in run(cluster, "prepared").stdout
