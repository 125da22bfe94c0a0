"""The commands for records, producers, members, logs and versions, against two brokers (M10)."""

import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.clients import Admin, Producer
from odradek.clients.admin.transactions import ProducerDescription
from odradek.protocol.api import ApiKey
from odradek.testing import Cluster


class Commands:
    """Runs commands against a cluster with a topic of two partitions, each with ten records."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = f"t{uuid.uuid4().hex[:8]}"
        cluster.create_topic(self.topic, assignment={0: [0], 1: [1]})
        asyncio.run(self._write())

    async def _write(self) -> None:
        async with Producer(self.cluster.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send(self.topic, b"v", partition=number % 2, timestamp_ms=1_700_000_000_000 + number)

    def run(self, *arguments: str, fails: int = 0) -> Result:
        command = [*arguments, "--bootstrap-server", self.cluster.bootstrap_servers]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == fails, (result.output, result.exception)
        return result

    def rows(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self.run(*arguments).stdout.splitlines()]

    def objects(self, *arguments: str, fails: int = 0) -> Sequence[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json", fails=fails).stdout.splitlines()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
    with Cluster(brokers=2, config=config) as cluster:
        yield cluster


@pytest.fixture
def odradek(cluster: Cluster) -> Commands:
    return Commands(cluster)


def test_the_offsets_of_partitions_are_shown_for_both_ends_and_for_a_time(odradek: Commands) -> None:
    topic = odradek.topic
    assert odradek.rows("partitions", "offsets", topic) == [
        ["TOPIC", "PARTITION", "EARLIEST", "LATEST"],
        [topic, "0", "0", "10"],
        [topic, "1", "0", "10"],
    ]
    at = "2023-11-14T22:13:20.007"
    assert odradek.objects("partitions", "offsets", f"{topic}:1", "--at", at) == [
        {"topic": topic, "partition": 1, "offset": 3}
    ]
    assert odradek.objects("partitions", "offsets", f"{topic}:0", "--at", "max-timestamp")[0]["offset"] == 9
    assert odradek.rows("partitions", "offsets", f"{topic}:0", "--at", "2030-01-01")[1] == [topic, "0", "-"]
    assert "is not a time such as" in odradek.run("partitions", "offsets", topic, "--at", "soon", fails=2).stderr


def test_records_are_deleted_before_an_offset_and_refused_partitions_are_named(
    odradek: Commands, tmp_path: Path
) -> None:
    topic = odradek.topic
    assert odradek.rows("partitions", "delete-records", topic, "--before", "3")[1:] == [
        [topic, "0", "3"],
        [topic, "1", "3"],
    ]
    plan = tmp_path / "plan.json"
    entries = [{"topic": topic, "partition": 0, "offset": -1}, {"topic": topic, "partition": 1, "offset": 99}]
    plan.write_text(json.dumps({"partitions": entries, "version": 1}))
    refused = odradek.run("partitions", "delete-records", "--file", str(plan), fails=1)
    assert f"{topic}-1 has no offset 99" in refused.stderr
    assert refused.stdout.splitlines()[1].split() == [topic, "0", "10"]
    assert odradek.objects("partitions", "delete-records", f"{topic}:1", "--all") == [
        {"topic": topic, "partition": 1, "log_start_offset": 10}
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "is not of the form"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}',
         "t-0 is named twice"),
    ],
)  # fmt: skip
def test_a_file_of_offsets_that_is_not_understood_changes_nothing(
    odradek: Commands, tmp_path: Path, content: str, says: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(content)
    assert says in odradek.run("partitions", "delete-records", "-f", str(plan), fails=2).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["partitions", "delete-records", "t"], "give TOPIC... with --before or --all, or give --file"),
        (["partitions", "delete-records", "--all"], "give TOPIC..."),
        (["partitions", "producers", "t"], "'t' is not TOPIC:N, one partition"),
        (["groups", "remove-members", "g"], "name members with --member or --instance, or give --all"),
    ],
)
def test_commands_without_what_they_need_are_usage_errors(odradek: Commands, arguments: list[str], says: str) -> None:
    assert says in odradek.run(*arguments, fails=2).stderr


def test_the_producers_of_a_partition_are_shown_and_an_open_transaction_is_aborted(
    odradek: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{odradek.topic}:0"
    head, only = odradek.rows("partitions", "producers", place)
    assert head == ["PRODUCER-ID", "EPOCH", "TRANSACTION-START", "COORDINATOR-EPOCH", "SEQUENCE", "TIMESTAMP"]
    assert only[1:5] == ["0", "-", "-", "9"]
    (shown,) = odradek.objects("partitions", "producers", place)
    assert (shown["last_sequence"], shown["current_txn_start_offset"]) == (9, None)
    command = ["partitions", "abort-transaction", place, "--producer-id", only[0], "--producer-epoch", "7"]
    assert f"has no open transaction in {odradek.topic}-0" in odradek.run(*command, fails=1).stderr

    async def open_since_offset_3(*_: object) -> list[ProducerDescription]:
        return [ProducerDescription(**(shown | {"current_txn_start_offset": 3}))]

    monkeypatch.setattr(Admin, "describe_producers", open_since_offset_3)
    said = odradek.run(*command).stdout
    assert said == f"aborted the transaction of producer {only[0]} in {odradek.topic}-0\n"


def test_members_are_removed_from_a_group(odradek: Commands) -> None:
    settings = {"group.id": odradek.topic, "bootstrap.servers": odradek.cluster.bootstrap_servers}
    consumer = confluent_kafka.Consumer(settings | {"group.instance.id": "one", "session.timeout.ms": 30_000})
    consumer.subscribe([odradek.topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.close()  # a static member stays
    said = odradek.run("groups", "remove-members", odradek.topic, "-i", "two", fails=1).stderr
    assert said == f"odradek: group '{odradek.topic}' has no member 'two'; `odradek groups members` shows them\n"
    removed = odradek.run("groups", "remove-members", odradek.topic, "--all").stdout
    assert removed == f"member one removed from group {odradek.topic}\n"
    assert odradek.objects("groups", "members", odradek.topic) == []


def test_logs_versions_features_and_resources_are_listed(odradek: Commands) -> None:
    logs = odradek.objects("brokers", "log-dirs", "--topic", odradek.topic)
    assert [(each["broker_id"], each["partition"]) for each in logs] == [(0, 0), (1, 1)]
    assert all(each["size_bytes"] > 0 for each in logs)
    assert odradek.rows("brokers", "log-dirs", "1", "-t", odradek.topic)[1][2:4] == [odradek.topic, "1"]
    found = {each["name"]: each for each in odradek.objects("brokers", "versions", "1")}
    assert found["FETCH"] == {"api_key": ApiKey.FETCH, "name": "FETCH", "min_version": 4, "max_version": 18}
    assert ["1", "FETCH", "4", "18"] in odradek.rows("brokers", "versions")
    assert ["group.version", "0", "1", "1"] in odradek.rows("brokers", "features")
    resources = odradek.objects("configs", "list")
    assert {"type": "broker", "name": "1"} in resources
    assert ["topic", odradek.topic] in odradek.rows("configs", "list")


# ---- Users -----------------------------------------------------------------------------------------------------------

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def run(*arguments: str, text: str = "", fails: int = 0) -> str:
    result = CliRunner().invoke(main, ["users", *arguments], input=text)
    assert result.exit_code == fails, (result.output, result.exception)
    return result.output


def test_a_user_is_added_listed_and_deleted(kafka: Any) -> None:
    server = ("-b", kafka.bootstrap_servers)
    assert "ann authenticates by SCRAM-SHA-256 and SCRAM-SHA-512" in run("add", "ann", *server, text="secret\n")
    (line,) = run("list", "ann", "--json", *server).splitlines()
    assert [each["mechanism"] for each in json.loads(line)["credentials"]] == MECHANISMS
    assert [line.split() for line in run("list", *server).splitlines() if "ann" in line] == [
        ["ann", each, "4096"] for each in MECHANISMS
    ]
    assert "by SCRAM-SHA-256" in run("delete", "ann", "-m", "SCRAM-SHA-256", *server)
    assert "by SCRAM-SHA-512" in run("delete", "ann", *server)
    assert "has no such credential" in run("delete", "ann", *server, fails=1)


def test_the_first_user_is_written_to_a_new_tree(tmp_path: Path) -> None:
    tree = f"sqlite:///{tmp_path}/metadata.sqlite"
    (tmp_path / "password").write_text("secret\n")
    run("add", "ann/b", "--metadata", tree, "--password-file", str(tmp_path / "password"), "-m", MECHANISMS[0])
    run("add", "ann/b", "--metadata", tree, "-m", MECHANISMS[1], "--iterations", "8192", text="secret")
    shown = CliRunner().invoke(main, ["metadata", "get", "/config/users/ann%2Fb", "--metadata", tree]).output
    assert all(each in shown for each in MECHANISMS)
    assert "secret" not in shown


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_password_is_refused(text: str, tmp_path: Path) -> None:
    assert "not empty" in run("add", "ann", "--metadata", f"sqlite:///{tmp_path}/t", text=text, fails=2)
    assert not (tmp_path / "t").exists()
