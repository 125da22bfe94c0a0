"""Apache Kafka's tool on a transaction of our broker that hangs: an operator ends it (M1)."""

from pathlib import Path
from typing import Final

import pytest

from conformance.interop.transactions import Partition
from conformance.peers import kafka_tools
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

OPTIONS: Final = {"transaction.partition.verification.enable": "false"}
"""The broker takes transactions on trust."""


def test_an_operator_ends_a_hanging_transaction_with_kafkas_tool(tmp_path: Path):
    """M1, KIP-664: `kafka-transactions.sh describe-producers` and `abort`."""
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:
        end_what_hangs(broker.bootstrap_servers)


def end_what_hangs(servers: str) -> None:
    partition = Partition(servers, "hanging")
    partition.write(b"hangs", producer=5)

    def tool(*arguments: str) -> str:
        where = ("--bootstrap-server", servers)
        return kafka_tools.tool("org.apache.kafka.tools.TransactionsCommand", *where, *arguments)

    place = ("--topic", "hanging", "--partition", "0")
    (row,) = [line.split() for line in tool("describe-producers", *place).splitlines() if line.startswith("5")]
    assert row[:2] == ["5", "0"]
    assert row[-1] == "0", "it is open since offset 0"
    tool("abort", *place, "--start-offset", "0")
    (row,) = [line.split() for line in tool("describe-producers", *place).splitlines() if line.startswith("5")]
    assert row[-1] == "None"
    partition.close()
