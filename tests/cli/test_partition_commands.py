"""`odradek partitions` against three brokers (M10): what it says, and what it refuses in one sentence."""

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.testing import Cluster, eventually

ONE = '{"topic":"t","partition":0,"replicas":[1]}'


class Commands:
    """Runs commands against a cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def run(self, *arguments: str, fails: int | None = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", self.servers], input=stdin)
        assert fails is None or result.exit_code == fails, (result.output, result.exception)
        return result

    def objects(self, *arguments: str, fails: int | None = 0, stdin: str | None = None) -> Sequence[Any]:
        return [
            json.loads(line) for line in self.run(*arguments, "--json", fails=fails, stdin=stdin).stdout.splitlines()
        ]

    def topic(self, *arguments: str) -> str:
        name = f"t{uuid.uuid4().hex[:8]}"
        self.run("topics", "create", name, *arguments)
        return name


@pytest.fixture(scope="module")
def three() -> Iterator[Commands]:
    config = {"default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
    with Cluster(brokers=3, config=config) as cluster:
        yield Commands(cluster.bootstrap_servers)


def test_describe_shows_leaders_replicas_and_in_sync_replicas(three):
    topic = three.topic("--partitions", "2", "--replication-factor", "1")
    head, *rows = three.run("partitions", "describe", topic).stdout.splitlines()
    assert head.split() == ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"]
    assert [row.split()[:2] for row in rows] == [[topic, "0"], [topic, "1"]]
    first = three.objects("partitions", "describe", topic)[0]
    assert first["replicas"] == first["isr"] == [first["leader"]]
    assert (first["adding_replicas"], first["removing_replicas"]) == ([], [])
    assert topic in three.run("partitions", "describe").stdout
    for filter_ in ("--under-replicated", "--unavailable", "--reassigning"):
        assert three.objects("partitions", "describe", topic, filter_) == []
    said = three.run("partitions", "describe", "no-such-topic", fails=1).stderr
    assert said == "odradek: there is no topic 'no-such-topic'\n"


def test_a_preferred_leader_that_leads_needs_no_election(three):
    topic = three.topic("--partitions", "2")
    rows = three.run("partitions", "elect", "--topic", topic).stdout.splitlines()[1:]
    assert [row.split()[2:] for row in rows] == [["not", "needed"]] * 2
    [one] = three.objects("partitions", "elect", "--topic", topic, "--partition", "1", "--unclean")
    assert one == {"topic": topic, "partition": 1, "error": "ELECTION_NOT_NEEDED"}
    assert three.run("partitions", "elect", "--all").stdout == "no partition needs an election\n"


def test_elections_of_partitions_in_kafka_s_file(three, tmp_path: Path):
    topic = three.topic()
    file = tmp_path / "election.json"
    entries = [{"topic": topic, "partition": 0}, {"topic": "gone", "partition": 7}]
    file.write_text(json.dumps({"partitions": entries}))
    results = three.objects("partitions", "elect", "--file", str(file), fails=1)
    assert results == [
        {"topic": "gone", "partition": 7, "error": "UNKNOWN_TOPIC_OR_PARTITION"},
        {"topic": topic, "partition": 0, "error": "ELECTION_NOT_NEEDED"},
    ]


def throttled(three: Commands, topic: str) -> dict[str, str]:
    """Return what of a topic and of broker 1 is throttled."""
    found = {}
    for arguments in (["--topic", topic], ["--broker", "1"]):
        entries = three.objects("configs", "describe", *arguments)
        found |= {each["name"]: each["value"] for each in entries if ".throttled." in each["name"]}
    return found


def test_a_throttle_is_removed_at_the_end_and_by_verify_if_the_command_has_died(three):
    topic = three.topic("--partitions", "2", "--replication-factor", "1")
    [before] = {each["leader"] for each in three.objects("partitions", "describe", f"{topic}:0")}
    after = (before + 1) % 3
    move = ("partitions", "reassign", "--topic", f"{topic}:0", "--replicas")
    said = three.run(*move, str(after), "--throttle", "1000000").stderr
    assert "--verify removes the throttle when all is done" in said
    assert throttled(three, topic) == {
        "leader.replication.throttled.replicas": f"0:{before}",
        "follower.replication.throttled.replicas": f"0:{after}",
        **(
            {}
            if 1 not in (before, after)
            else dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "1000000")
        ),
    }
    verify = (*move, str(after), "--verify")
    eventually(lambda: three.objects(*verify, fails=None)[0]["state"] == "done")
    assert throttled(three, topic) == {}
    said = three.run(*move, str(before), "--throttle", "1000000", "--wait").stderr
    assert f"removed the throttle of topic {topic}, broker {min(before, after)}, broker {max(before, after)}" in said
    eventually(lambda: throttled(three, topic) == {})  # a broker may be asked that has not read the change yet


def test_a_move_is_shown_with_its_rate_and_what_is_left_until_it_is_cancelled(three, tmp_path: Path):
    topic = three.topic("--partitions", "1", "--replication-factor", "1")
    (tmp_path / "records").write_text(f"{'x' * 100_000}\n" * 25)
    three.run("produce", topic, "--lines", str(tmp_path / "records"))
    [before] = {each["leader"] for each in three.objects("partitions", "describe", topic)}
    after = (before + 1) % 3
    three.run("partitions", "reassign", "--topic", f"{topic}:0", "--replicas", str(after), "--throttle", "1000")
    [described] = three.objects("cluster", "describe")
    [move] = [each for each in described["moves"] if each["topic"] == topic]
    assert (move["broker_id"], move["log_dir"], described["live_brokers"]) == (after, None, 3)
    assert move["left_bytes"] > 1_000_000
    assert move["bytes_per_second"] >= 0
    head, *rows = three.run("cluster", "describe").stdout.splitlines()
    assert f"cluster {described['cluster_id']}  controller {described['controller_id']}  3 of 3 brokers live" == head
    assert any(row.split()[:3] == [topic, "0", str(after)] for row in rows)
    three.run("partitions", "reassign", "--cancel", "--topic", topic, "--wait")
    assert throttled(three, topic) == {}
    assert not [each for each in three.objects("cluster", "describe")[0]["moves"] if each["topic"] == topic]


@pytest.mark.parametrize("value", ["0", "-1", "fast", "1.5"])
def test_a_throttle_is_a_positive_number(three, value):
    said = three.run("partitions", "reassign", "--topic", "t:0", "--replicas", "1", "--throttle", value, fails=2).stderr
    assert "Invalid value for '--throttle'" in said


def test_a_generated_plan_is_executed_and_the_previous_assignment_is_printed(three):
    topic = three.topic("--partitions", "6")
    made = three.run("partitions", "reassign", "--generate", "--topic", topic, "--broker-list", "2,1")
    before, plan = json.loads(made.stderr), json.loads(made.stdout)
    assert plan["version"] == 1
    assert [each["partition"] for each in plan["partitions"]] == list(range(6))
    assert sorted(each["replicas"] for each in plan["partitions"]) == [[1]] * 3 + [[2]] * 3
    verified = three.objects("partitions", "reassign", "--verify", "--file", "-", fails=1, stdin=made.stdout)
    assert {each["state"] for each in verified} == {"done", "not begun"}
    three.run("partitions", "reassign", "--verify", "--file", "-", stdin=json.dumps(before))
    assert sorted(each["replicas"] for each in before["partitions"]) == [[0]] * 2 + [[1]] * 2 + [[2]] * 2


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"version":1}', "partitions is not a list"),
        ('{"version":1,"partitions":[]}', "names no partition"),
        ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":1}]}', "replicas is not a list of integers"),
        ('{"version":1,"partitions":[%s,%s]}' % ((ONE,) * 2), "t-0 is named 2 times"),
        (
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}]}',
            "broker 1 has no directory /d for t-0: log_dirs names /",
        ),
    ],
)
def test_an_invalid_file_is_reported_in_one_sentence(three, tmp_path: Path, plan, says):
    file = tmp_path / "plan.json"
    file.write_text(plan)
    said = three.run("partitions", "reassign", "--file", str(file), fails=2).stderr
    assert says in said
    assert said.startswith(f"odradek: {file}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no partitions named"),
        (("--topic", "t", "--replicas", "1"), "no partitions named"),
        (("--topic", "t", "--partition", "0", "--replicas", "1,x"), "not a list of broker ids"),
        (("--topic", "t", "--partition", "0", "--replicas", "1,1"), "has broker 1 twice"),
        (("--partition", "0"), "--partition needs its --topic"),
        (("--file", "-", "--topic", "t"), "--file says it all"),
        (("--list", "--verify"), "exclude each other"),
        (("--generate",), "--generate plans for whole topics"),
        (("--broker-list", "1"), "--broker-list goes with --generate"),
        (("--cancel",), "which reassignments"),
        (("--all",), "--all goes with --cancel"),
        (("--list", "--wait"), "--wait has no meaning with --list"),
        (("--verify",), "no partitions named"),
        (("--verify", "--topic", "t:0", "--replicas", "1", "--throttle", "9"), "a throttle has no meaning"),
        (("--cancel", "--topic", "t", "--replicas", "1"), "--replicas has no meaning with --cancel"),
    ],
)
def test_flags_that_do_not_go_together_are_usage_errors(three, arguments, says):
    assert says in three.run("partitions", "reassign", *arguments, fails=2, stdin="{}").stderr


@pytest.mark.parametrize("arguments", [(), ("--partition", "1"), ("--topic", "t", "--all")])
def test_an_election_without_partitions_is_a_usage_error(three, arguments):
    assert "no partitions named: give --topic" in three.run("partitions", "elect", *arguments, fails=2).stderr


def test_an_impossible_reassignment_is_reported_and_the_others_begin(three):
    topic = three.topic("--partitions", "2")
    first, second = (each["leader"] for each in three.objects("partitions", "describe", topic))
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": 0, "replicas": [first, 77]},
            {"topic": topic, "partition": 1, "replicas": [second]},
        ],
    }
    result = three.run("partitions", "reassign", "--file", "-", fails=1, stdin=json.dumps(plan))
    assert f"odradek: brokers that {topic}-0 would have in addition are not alive: [77]" in result.stderr
    assert [row.split()[1] for row in result.stdout.splitlines()[1:]] == ["1"]
    said = three.run("partitions", "reassign", "-t", topic, "-p", "5", "-r", "1", fails=1).stderr
    assert said == f"odradek: there is no partition {topic}-5: {topic} has 0 to 1\n"
    said = three.run("partitions", "reassign", "--generate", "-t", topic, "--broker-list", "1,9", fails=1).stderr
    assert said == "odradek: broker 9 is not available; live brokers: 0, 1, 2\n"


def test_log_dirs_are_those_of_the_broker(three, tmp_path: Path):
    topic = three.topic()
    broker = three.objects("partitions", "describe", topic)[0]["leader"]
    present = three.objects("brokers", "log-dirs", str(broker))[0]["log_dir"]
    file = tmp_path / "plan.json"
    for directory, fails in (("any", 0), (present, 0), ("/elsewhere", 2), (f"{present}/x", 2)):
        entry = {"topic": topic, "partition": 0, "replicas": [broker], "log_dirs": [directory]}
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        for mode in ((), ("--verify",)):
            result = three.run("partitions", "reassign", *mode, "--file", str(file), fails=fails)
            assert not fails or f"broker {broker} has no directory {directory} for {topic}-0" in result.stderr


def test_no_reassignment_in_progress_is_reported(three):
    assert three.run("partitions", "reassign", "--list").stdout == "no partition is being reassigned\n"
    assert (
        three.run("partitions", "reassign", "--cancel", "--all").stderr
        == "none of these partitions is being reassigned\n"
    )
    assert three.objects("partitions", "reassign", "--list") == []


def test_an_unknown_broker_can_t_be_drained(three):
    said = three.run("brokers", "drain", "7", fails=1).stderr
    assert said == "odradek: broker 7 is not available; live brokers: 0, 1, 2\n"
    three.run("brokers", "drain", "x", fails=2)


def test_partitions_that_fit_on_no_other_broker_are_reported_before_anything_moves(kafka: Any):
    """On one broker there is no other."""
    alone = Commands(kafka.bootstrap_servers)
    alone.topic()
    assert "no other broker can take a replica of" in alone.run("brokers", "drain", "0", fails=1).stderr
    assert alone.objects("partitions", "reassign", "--list") == []


def test_a_dry_run_of_a_drain_shows_the_plan_and_moves_nothing(three):
    topic = three.topic("--partitions", "3")
    planned = [each for each in three.objects("brokers", "drain", "1", "--dry-run") if each["topic"] == topic]
    assert [each["state"] for each in planned] == ["planned"]
    assert planned[0]["replicas"] == [1]
    assert planned[0]["target_replicas"] in ([0], [2])
    assert three.objects("partitions", "reassign", "--list") == []
