"""`odradek brokers` (M10): through the wire alone, so with any Kafka cluster."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.cli.brokers.drain import _Draining
from odradek.model import KafkaError
from odradek.testing import Cluster, Simulation, eventually

DEADLINE_S = 120.0


def odradek(servers: str, *arguments: str, fails: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", servers])
    assert result.exit_code == fails, result.output
    return result


def objects(lines: str) -> Sequence[Any]:
    return [json.loads(line) for line in lines.splitlines()]


def test_list_shows_addresses_racks_and_the_controller(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path, config={"broker.rack": "north"}) as cluster:
        servers = cluster.bootstrap_servers
        head, row = odradek(servers, "brokers", "list").stdout.splitlines()
        assert head.split() == ["BROKER", "ADDRESS", "RACK"]
        assert row.split() == ["0", servers, "north", "controller"]
        host, port = servers.split(":")
        assert objects(odradek(servers, "brokers", "list", "--json").stdout) == [
            {
                "broker_id": 0,
                "host": host,
                "port": int(port),
                "rack": "north",
                "is_controller": True,
                "is_fenced": False,
            }
        ]


def test_a_broker_that_is_away_is_listed_as_fenced_until_it_is_unregistered() -> None:
    """M10. As Kafka's `kafka-cluster unregister`."""
    with Cluster(brokers=2) as cluster:
        gone = 1 - cluster.controller()
        address, servers = cluster.address(gone), cluster.address(1 - gone)
        said = odradek(servers, "brokers", "unregister", str(gone), fails=1).stderr
        assert said == f"odradek: broker {gone} is alive, and would register again: stop it, then unregister it\n"
        cluster.kill(gone)
        assert eventually(lambda: "fenced" in odradek(servers, "brokers", "list").stdout, within_s=DEADLINE_S)
        rows = [line.split() for line in odradek(servers, "brokers", "list").stdout.splitlines()[1:]]
        wanted = [[str(gone), address, "-", "fenced"], [str(1 - gone), servers, "-", "controller"]]
        assert sorted(rows) == sorted(wanted)
        listed = objects(odradek(servers, "brokers", "list", "--json").stdout)
        assert {each["broker_id"]: each["is_fenced"] for each in listed} == {gone: True, 1 - gone: False}
        said = odradek(servers, "brokers", "unregister", str(gone)).stdout
        assert said == f"Broker {gone} is no longer registered.\n"
        assert len(odradek(servers, "brokers", "list").stdout.splitlines()) == 2
        said = odradek(servers, "brokers", "unregister", str(gone), fails=1).stderr
        assert said == f"odradek: Broker ID {gone} is not currently registered\n"
        cluster.restart(gone)
        assert eventually(lambda: len(odradek(servers, "brokers", "list").stdout.splitlines()) == 3)


def test_describe_shows_directories_sizes_and_leaders(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        odradek(servers, "topics", "create", "t", "--partitions", "3")
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        producer.produce("t", b"x" * 10_000, partition=1)
        assert producer.flush(30) == 0
        (described,) = objects(odradek(servers, "brokers", "describe", "0", "--json").stdout)
        (directory,) = described.pop("log_dirs")
        assert described["broker_id"] == 0
        assert (described["leader_count"], described["replica_count"]) == (3, 3)
        assert (directory["log_dir"], directory["error"]) == (f"{tmp_path}/broker-0", None)
        assert directory["partition_count"] == 3
        assert 10_000 < directory["size_bytes"] < 11_000
        assert 0 < directory["usable_bytes"] < directory["total_bytes"]
        shown = odradek(servers, "brokers", "describe").stdout.splitlines()
        assert shown[0] == f"broker 0  {servers}  controller  leads 3 of 3 replicas"
        assert shown[2].split()[:3] == [f"{tmp_path}/broker-0", "3", str(directory["size_bytes"])]


def test_an_unknown_broker_is_reported_in_one_sentence(kafka: Any) -> None:
    said = odradek(kafka.bootstrap_servers, "brokers", "describe", "7", fails=1).stderr
    assert said == "odradek: broker 7 is not available; live brokers: 0\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("describe", "-1"), "No such option"),
        (("describe", "x"), "'x' is not a valid integer"),
        (("list", "x"), "unexpected extra argument (x)"),
    ],
)
def test_a_broker_id_that_is_no_number_is_a_usage_error(kafka: Any, arguments: tuple[str, ...], says: str) -> None:
    assert says in odradek(kafka.bootstrap_servers, "brokers", *arguments, fails=2).output


def test_apache_kafka_s_brokers_are_described_too() -> None:
    """librdkafka's own cluster does not tell of directories: the command says so, and lists brokers nonetheless."""
    client = confluent_kafka.Producer({"test.mock.num.brokers": 3, "client.id": uuid.uuid4().hex})
    servers = ",".join(f"{each.host}:{each.port}" for each in client.list_topics(timeout=30).brokers.values())
    rows = [line.split() for line in odradek(servers, "brokers", "list").stdout.splitlines()[1:]]
    assert sorted(row[1] for row in rows) == sorted(servers.split(","))
    said = odradek(servers, "brokers", "describe", fails=1).stderr
    assert "DESCRIBE_LOG_DIRS" in said.upper()


class CancelledMoves:
    """A cluster in which every move is cancelled at once. An `Admin` as far as a drain needs one."""

    requested = 0

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(broker_id=number, rack=None) for number in (1, 2)])

    async def list_partition_reassignments(self) -> dict[Any, Any]:
        return {}

    async def list_topics(self, *, include_internal: bool) -> Any:
        del include_internal
        return [SimpleNamespace(name="t", partitions={0: SimpleNamespace(replicas=(1,), leader=1)})]

    async def alter_partition_reassignments(self, targets: dict[Any, Any]) -> None:
        self.requested += len(targets)


def test_a_drain_whose_moves_are_cancelled_fails(seed: int) -> None:
    """It said that the broker had no replicas, as if the moves were done and the metadata late."""
    cluster = CancelledMoves()
    draining = _Draining(cast("Any", cluster), 1, at_once=5, as_json=True)
    with pytest.raises(KafkaError, match="t-0: the move was cancelled"):
        Simulation(seed).run(draining.drain())
    assert cluster.requested == 1


def test_features_get_other_levels_all_or_none(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:

        def features(*arguments: str, fails: int = 0) -> Result:
            return odradek(cluster.bootstrap_servers, "brokers", "features", *arguments, fails=fails)

        assert features("--downgrade", "transaction.version=1").stdout == "transaction.version is at level 1.\n"
        assert (
            "Invalid update version 9"
            in features("--upgrade", "transaction.version=2", "--upgrade", "group.version=9", fails=1).stderr
        )
        assert "without setting the upgrade type" in features("--upgrade", "transaction.version=0", fails=1).stderr
        assert "is not FEATURE=LEVEL" in features("--upgrade", "transaction.version", fails=2).stderr
        assert ["transaction.version", "0", "2", "1"] in [line.split() for line in features().stdout.splitlines()]
