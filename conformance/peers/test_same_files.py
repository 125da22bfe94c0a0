"""Files that Kafka's tools write, read by our commands, and the other way round."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from conformance.peers.kafka_tools import kafka_tools, tool
from odradek.cli import main
from odradek.testing import Cluster

pytestmark = pytest.mark.needs("kafka")

_TOOLS: Final = "org.apache.kafka.tools"
GROUPS: Final = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN: Final = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
ELECT: Final = f"{_TOOLS}.LeaderElectionCommand"
DELETE: Final = f"{_TOOLS}.DeleteRecordsCommand"
TOPIC: Final = "files"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, config={"default.replication.factor": "2"}) as made:
        made.create_topic(TOPIC, partitions=2)
        with made.producer() as producer:
            for number in range(10):
                producer.send(TOPIC, b"x", partition=number % 2)
        yield made


def ours(cluster: Cluster, *arguments: str, fails: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", cluster.bootstrap_servers])
    assert result.exit_code == fails, result.output
    return result.stdout


def kafkas(cluster: Cluster, main_class: str, *arguments: str) -> str:
    return tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, *arguments)


@pytest.mark.parametrize("groups", [("g",), ("g", "g,2"), ("g", 'a "quoted" name', "ünïcode")])
def test_exported_offsets_are_the_same_and_read_by_both(
    cluster: Cluster, tmp_path: Path, groups: tuple[str, ...]
) -> None:
    ours(cluster, "groups", "reset", *groups, "-t", TOPIC, "--to-offset", "3", "--execute")
    named = [argument for group in groups for argument in ("--group", group)]
    reset = ("--reset-offsets", "--all-topics", "--to-current", "--export", "--dry-run")
    theirs = kafkas(cluster, GROUPS, *named, *reset)
    mine = ours(cluster, "groups", "reset", *groups, "--all-topics", "--to-current", "--export")
    lines = [line for line in theirs.splitlines() if f"{TOPIC}," in line or f'{TOPIC}",' in line]
    assert len(lines) == 2 * len(groups)
    for name, text in (("theirs.csv", "\n".join(lines)), ("ours.csv", mine)):
        file = tmp_path / name
        file.write_text(text)
        shown = ours(cluster, "groups", "reset", *groups, "--from-file", str(file), "--json")
        assert sorted((each["group_id"], each["partition"]) for each in map(json.loads, shown.splitlines())) == sorted(
            (group, number) for group in groups for number in (0, 1)
        )
        read = kafkas(cluster, GROUPS, *named, "--reset-offsets", "--from-file", str(file), "--dry-run")
        assert read.count(f" {TOPIC} ") == 2 * len(groups)


def plan_of(printed: str) -> Any:
    return json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith("{")))


def test_reassignments_are_read_by_both(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(json.dumps({"topics": [{"topic": TOPIC}], "version": 1}))
    wanted = ("--topics-to-move-json-file", str(tmp_path / "topics.json"), "--broker-list", "0,1", "--generate")
    file = tmp_path / "plan.json"
    for plan in (
        plan_of(kafkas(cluster, REASSIGN, *wanted)),
        plan_of(ours(cluster, "partitions", "reassign", "--generate", "--topic", TOPIC)),
    ):
        file.write_text(json.dumps(plan))
        ours(cluster, "partitions", "reassign", "--file", str(file), "--wait")
        ours(cluster, "partitions", "reassign", "--file", str(file), "--verify")
        verified = kafkas(cluster, REASSIGN, "--reassignment-json-file", str(file), "--verify")
        assert verified.count(f"Reassignment of partition {TOPIC}") == 2
        assert verified.count("is completed") == 2
    bound = plan["partitions"][0] | {"log_dirs": ["any"]}
    for wrong in (plan | {"version": 2}, plan | {"partitions": [bound]}):
        file.write_text(json.dumps(wrong))
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        for mode in ("--execute", "--verify"):
            assert kafka_tools().run(REASSIGN, *servers, "--reassignment-json-file", str(file), mode)[0] == 1
        ours(cluster, "partitions", "reassign", "--file", str(file), fails=2)


def test_elections_and_offsets_of_records_are_read_by_both(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "election.json"
    file.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": number} for number in (0, 1)]}))
    kafkas(cluster, ELECT, "--election-type", "PREFERRED", "--path-to-json-file", str(file))
    ours(cluster, "partitions", "elect", "--file", str(file))
    entry = {"topic": TOPIC, "partition": 0, "offset": 2}
    file.write_text(json.dumps({"partitions": [entry], "version": 1}))
    assert "low_watermark: 2" in kafkas(cluster, DELETE, "--offset-json-file", str(file))
    assert ours(cluster, "partitions", "delete-records", "--file", str(file)).split()[-1] == "2"
