"""Apache Kafka's tools on transactions that our broker wrote: files, and a hanging one that an operator ends (M1)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kafka_tools
import pytest
from dumps import as_row, as_shown, kafkas_lines, our_lines, our_rows, segment_files

from odradek.testing.servers.odradek_process import ServedBroker
from transactions import Partition

pytestmark = pytest.mark.needs("kafka")

OPTIONS: Final = {"log.retention.ms": "-1", "transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker that takes transactions on trust."""
    with ServedBroker(tmp_path_factory.mktemp("transactions") / "data", options=OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="module")
def files(broker: ServedBroker) -> list[Path]:
    """The files of a partition with committed, aborted and open transactions, in several segments and in one."""
    for name, size in (("many", "600"), ("one", "1000000")):
        partition = Partition(broker.bootstrap_servers, name, segment_bytes=size)
        partition.fill()
        partition.close()
    broker.stop()
    broker.start()
    return segment_files([broker.data_dir / "many-0", broker.data_dir / "one-0"])


def of(lines: Mapping[Path, Sequence[Any]], suffix: str) -> dict[Path, Sequence[Any]]:
    found = {path: lines[path] for path in lines if path.suffix == suffix}
    assert found, f"there is no {suffix}"
    return found


def test_both_dumps_have_the_same_lines(files: list[Path]):
    """M1: control records, producers with an open transaction, and every aborted one."""
    kafkas, ours = kafkas_lines(files, "--print-data-log"), our_lines(files, "--records")
    for suffix in (".log", ".txnindex", ".snapshot"):
        assert of(ours, suffix) == of(kafkas, suffix)
    assert sum(map(len, of(ours, ".txnindex").values())) >= 10
    assert len(of(ours, ".txnindex")) > 2
    logged = "\n".join(line for lines in of(ours, ".log").values() for line in lines)
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in logged
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in logged


def test_our_json_has_every_field_that_kafka_prints(files: list[Path]):
    """M1"""
    kafkas, rows = kafkas_lines(files, "--print-data-log"), our_rows(files, "--records")
    for suffix in (".log", ".txnindex"):
        for file, lines in of(kafkas, suffix).items():
            theirs = [as_row(file, line) for line in lines]
            shown = [as_shown(row) for row in rows[file]]
            assert [{name: row[name] for name in their} for row, their in zip(shown, theirs, strict=True)] == theirs


def test_an_operator_ends_a_hanging_transaction_with_kafkas_tool(broker: ServedBroker, files: list[Path]):
    """M1, KIP-664: `kafka-transactions.sh describe-producers` and `abort`."""
    assert files
    partition = Partition(broker.bootstrap_servers, "hanging")
    partition.write(b"hangs", producer=5)

    def tool(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        return kafka_tools.tool("org.apache.kafka.tools.TransactionsCommand", *where, *arguments)

    place = ("--topic", "hanging", "--partition", "0")
    (row,) = [line.split() for line in tool("describe-producers", *place).splitlines() if line.startswith("5")]
    assert row[:2] == ["5", "0"]
    assert row[-1] == "0", "it is open since offset 0"
    tool("abort", *place, "--start-offset", "0")
    (row,) = [line.split() for line in tool("describe-producers", *place).splitlines() if line.startswith("5")]
    assert row[-1] == "None"
    partition.close()
