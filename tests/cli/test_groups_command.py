"""`odradek groups` against brokers, with members of another library (M10)."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.model import ErrorCode
from odradek.model.texts import one_line
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import Cluster, eventually

Odradek = Callable[..., Result]
DEADLINE_S = 60.0
TREE = ", and `odradek groups tree` those of generation 1, whose consumers use ZooKeeper"
OFFSET_COLUMNS = [
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
]  # fmt: skip


@pytest.fixture
def odradek(kafka: Any) -> Odradek:
    """Runs `odradek groups`; it must succeed unless `fails` is its exit code."""

    def call(*arguments: str, fails: int = 0, stdin: str = "") -> Result:
        line = ["groups", *arguments, "--bootstrap-server", kafka.bootstrap_servers]
        result = CliRunner().invoke(main, line, input=stdin)
        assert result.exit_code == fails, result.output
        return result

    return call


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of the test's own, which is the name of a topic, too."""
    return re.sub(r"[^\w.]", "-", request.node.name)[:120]


@pytest.fixture
def topic(group: str, kafka: Any) -> str:
    """A topic of three partitions with ten records each."""
    kafka.create_topic(group, partitions=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(30):
        producer.produce(group, str(number), partition=number % 3, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(DEADLINE_S) == 0
    return group


@contextmanager
def member(servers: str, group: str, topic: str, client_id: str = "one") -> Iterator[Any]:
    """A member of the group that has partitions."""
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": client_id, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.05) or consumer.assignment(), within_s=DEADLINE_S)
        yield consumer
    finally:
        consumer.close()


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def rows(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def committed(odradek: Odradek, group: str) -> dict[int, int]:
    return {each["partition"]: each["committed_offset"] for each in lines(odradek("offsets", group, "--json"))}


# ---- what is shown --------------------------------------------------------------------------------------------------


def test_offsets_members_and_state_have_the_columns_of_kafkas_tool(
    odradek: Odradek, kafka: Any, topic: str, group: str
) -> None:
    with member(kafka.bootstrap_servers, group, topic) as consumer:
        assert "lag -" in odradek("describe", group).stdout
        wanted = [confluent_kafka.TopicPartition(topic, 1, 4)]
        consumer.commit(offsets=wanted, asynchronous=False)
        for arguments in (["offsets", group], ["describe", "--group", group, "--offsets"]):
            head, first, second, _ = rows(odradek(*arguments))
            assert head == OFFSET_COLUMNS
            assert first[:6] == [group, topic, "0", "-", "10", "-"]
            assert second[:6] == [group, topic, "1", "4", "10", "6"]
            assert second[6].startswith("one-")
            assert second[7:] == ["/127.0.0.1", "one"]
        for arguments in (["members", "-g", group, "--verbose"], ["describe", group, "--members", "--verbose"]):
            head, only = rows(odradek(*arguments))
            assert head == [
                "GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT",
            ]  # fmt: skip
            assert only[2:] == ["-", "/127.0.0.1", "one", "3", f"{topic}(0,1,2)"]
        assert rows(odradek("members", group))[0][-1] == "#PARTITIONS"
        (shown,) = lines(odradek("members", group, "--json"))
        assert (shown["group_id"], shown["assignment"]) == (group, [[topic, 0], [topic, 1], [topic, 2]])
        head, state = rows(odradek("describe", group, "--state"))
        assert head == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
        assert state == [group, kafka.bootstrap_servers, "(0)", "range", "Stable", "1"]
        assert [group, "classic", "Stable", "consumer"] in rows(odradek("list", "--state", "stable,Dead"))
        assert "lag 6" in odradek("describe", group).stdout
        uncommitted = f"not in the lag, without a committed offset: 2 partitions ({group}-0, {group}-2)"
        assert uncommitted in odradek("describe", group).stdout
    assert uncommitted in odradek("describe", group).stdout, "a group without members"
    assert [group, "classic", "Stable", "consumer"] not in rows(odradek("list", "--type", "Classic"))
    left = odradek("members", group)
    assert (left.stdout, left.stderr) == ("", f"group {group} has no members\n")


def test_a_client_that_leaves_and_returns_is_a_line_of_the_description(
    odradek: Odradek, kafka: Any, topic: str, group: str
) -> None:
    for _ in range(3):
        with member(kafka.bootstrap_servers, group, topic, "restless") as consumer:
            consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, 4)], asynchronous=False)
    line = "client restless left the group 3 times within "
    eventually(lambda: line in odradek("describe", group).stdout, within_s=DEADLINE_S)
    assert "probably max.poll.interval.ms was exceeded" in odradek("describe", group).stdout


def test_a_group_that_is_not_of_consumers_is_described_by_its_protocol_type(
    odradek: Odradek, kafka: Any, group: str
) -> None:
    """Connect's workers own no partitions, so that nothing is said of members without one."""
    join = {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "connect",
        "protocols": [{"name": "sessioned", "metadata": b"worker"}],
    }
    find = {"key_type": 0, "coordinator_keys": [group]}
    with BlockingWireClient(kafka.bootstrap_servers) as worker:

        def joined() -> Any:
            worker.ask(ApiKey.FIND_COORDINATOR, find, 4)  # which creates the topic of offsets
            answer = worker.ask(ApiKey.JOIN_GROUP, join, 3)
            return answer if answer.error_code == ErrorCode.none else None

        answer = eventually(joined, within_s=DEADLINE_S)
        who = {"group_id": group, "member_id": answer.member_id, "generation_id": answer.generation_id}
        given = [{"member_id": answer.member_id, "assignment": b"tasks"}]
        assert worker.ask(ApiKey.SYNC_GROUP, {**who, "assignments": given}, 3).error_code == ErrorCode.none
        (line,) = odradek("describe", group).stdout.splitlines()
    assert line == f"group {group}  state Stable  protocol type connect  protocol sessioned  members 1"


def test_an_empty_cluster_has_no_groups() -> None:
    with Cluster() as cluster:
        servers = ["--bootstrap-server", cluster.bootstrap_servers]

        def shown(*arguments: str) -> str:
            result = CliRunner().invoke(main, ["groups", *arguments, *servers])
            assert result.exit_code == 0, result.output
            return result.output

        note, head = shown("list").splitlines()
        assert note == "there are no groups; `odradek groups tree` lists those of generation 1"
        assert head.split() == ["GROUP", "TYPE", "STATE", "PROTOCOL"]
        assert shown("list", "--json") == ""
        for command in ("describe", "members", "offsets", "delete"):
            assert shown(command, "--all-groups") == ""
        assert shown("reset", "--all-groups", "--all-topics", "--to-latest", "--execute") == ""


@pytest.mark.parametrize("command", ["describe", "members", "offsets", "delete"])
def test_groups_that_do_not_exist_are_named_after_what_is_known_of_the_others(
    odradek: Odradek, topic: str, group: str, command: str
) -> None:
    odradek("reset", group, "-t", topic, "--to-latest", "--execute")
    result = odradek(command, "nobody", "--group", group, "-g", "no one", fails=1)
    assert result.stderr.splitlines()[-2:] == [
        "odradek: there is no group 'nobody'; `odradek groups list` shows the groups" + TREE,
        "odradek: there is no group 'no one'; `odradek groups list` shows the groups" + TREE,
    ]
    assert group in (result.stderr if command == "members" else result.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe"], "name groups, as arguments or with --group, or give --all-groups"),
        (["delete", "g", "--all-groups"], "name groups, as arguments or with --group, or give --all-groups"),
        (["list", "--state", "stable,sleepy"], "'sleepy' is none of PreparingRebalance, "),
        (["list", "--type", "modern"], "'modern' is none of classic, consumer, "),
        (["watch"], "name one group, as an argument or with --group"),
        (["watch", "g", "--group", "h"], "name one group, as an argument or with --group"),
        (["watch", "g", "--interval", "0"], "0.0 is not in the range"),
        (["offsets-delete", "g", "-t", "t:one"], "'t:one' is not TOPIC or TOPIC:N,N-N,…"),
        (["reset", "g", "-t", "t"], "give exactly one of --"),
        (["reset", "g", "-t", "t", "--to-latest", "--to-offset", "0"], "give exactly one of --"),
        (["reset", "g", "--to-latest"], "say which partitions: --topic TOPIC[:N,…]"),
        (["reset", "g", "--to-latest", "-t", "t", "--all-topics"], "say which partitions: --topic TOPIC[:N,…]"),
        (["reset", "g", "--from-file", "-", "-t", "t"], "--from-file names the partitions"),
        (["reset", "g", "-t", "t", "--to-latest", "--execute", "--dry-run"], "--execute and --dry-run exclude"),
        (["reset", "g", "-t", "t", "--to-latest", "--export", "--json"], "--export and --json exclude"),
        (["reset", "g", "-t", "t:-1", "--to-latest"], "'t:-1' is not TOPIC or TOPIC:N,N-N,…"),
        (["reset", "g", "-t", "t", "--to-offset", "-1"], "-1 is not in the range"),
        (["reset", "g", "-t", "t", "--by-duration", "1h"], "'1h' is not a duration such as P7D"),
        (["reset", "g", "-t", "t", "--to-datetime", "noon"], "'noon' is not a time such as"),
        (["reset", "g", "--from-file", "/nowhere/at/all"], "No such file or directory"),
    ],
)
def test_wrong_arguments_are_a_usage_error_that_says_what_is_expected(
    odradek: Odradek, arguments: list[str], said: str
) -> None:
    shown = odradek(*arguments, fails=2).output
    assert "Usage: " in shown
    assert said in shown


# ---- reset ----------------------------------------------------------------------------------------------------------


def test_a_reset_is_a_dry_run_unless_it_is_executed(odradek: Odradek, topic: str, group: str) -> None:
    arguments = ("reset", "--group", group, "--topic", f"{topic}:0,2", "--to-latest")
    head, *planned = rows(dry := odradek(*arguments))
    assert head == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
    assert planned == [[group, topic, "0", "-", "10"], [group, topic, "2", "-", "10"]]
    assert f"group {group!r} does not exist; --execute creates it" in dry.stderr
    assert "dry run: nothing was changed; add --execute" in dry.stderr
    assert odradek(*arguments, "--dry-run").stdout == dry.stdout
    odradek("offsets", group, fails=1)
    done = odradek(*arguments, "--execute", "--json")
    assert [(each["partition"], each["new_offset"], each["executed"]) for each in lines(done)] == [
        (0, 10, True), (2, 10, True),
    ]  # fmt: skip
    assert "dry run" not in done.stderr
    assert committed(odradek, group) == {0: 10, 2: 10}


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0, 2: 0}),
        (["--to-current"], {0: 5, 1: 5, 2: 5}),
        (["--to-offset", "7"], {0: 7, 1: 7, 2: 7}),
        (["--to-offset", "70"], {0: 10, 1: 10, 2: 10}),
        (["--shift-by", "2"], {0: 7, 1: 7, 2: 7}),
        (["--shift-by", "-20"], {0: 0, 1: 0, 2: 0}),
        (["--to-datetime", "2023-11-14T22:13:24.000"], {0: 2, 1: 1, 2: 1}),
        (["--to-datetime", "2100-01-01T00:00:00Z"], {0: 10, 1: 10, 2: 10}),
        (["--by-duration", "P36500D"], {0: 0, 1: 0, 2: 0}),
        (["--by-duration", "PT0S"], {0: 10, 1: 10, 2: 10}),
    ],
)
def test_offsets_are_reset_to_places_times_and_distances(
    odradek: Odradek, topic: str, group: str, goal: list[str], expected: dict[int, int]
) -> None:
    odradek("reset", group, "-t", topic, "--to-offset", "5", "--execute")
    odradek("reset", group, "--all-topics", *goal, "--execute")
    assert committed(odradek, group) == expected


def test_an_active_group_is_neither_reset_nor_deleted_nor_loses_its_offsets(
    odradek: Odradek, kafka: Any, topic: str, group: str
) -> None:
    odradek("reset", group, "-t", topic, "--to-offset", "5", "--execute")
    odradek("reset", f"{group}.idle", "-t", topic, "--to-offset", "5", "--execute")
    with member(kafka.bootstrap_servers, group, topic):
        for more in ([], ["--execute"]):
            refused = odradek("reset", group, "-t", topic, "--to-latest", *more, fails=1)
            assert refused.output == (
                f"odradek: group {group!r} is Stable with 1 member, and only a group without members can be reset; "
                "stop them and try again\n"
            )
        both = odradek("reset", group, f"{group}.idle", "-t", topic, "--to-latest", "--execute", fails=1)
        assert {row[0] for row in rows(both)[1:]} == {f"{group}.idle"}
        assert f"group {group!r} has members; stop them" in odradek("delete", group, fails=1).output
        kept = odradek("offsets-delete", group, "-t", topic, fails=1).output
        assert (
            kept == f"odradek: members of group {group!r} read topic {topic!r}; stop them and try again (and 2 more)\n"
        )
        assert committed(odradek, group) == {0: 5, 1: 5, 2: 5}
    assert committed(odradek, f"{group}.idle") == {0: 10, 1: 10, 2: 10}
    odradek("reset", group, "-t", topic, "--to-latest", "--execute")
    assert committed(odradek, group) == {0: 10, 1: 10, 2: 10}


HOSTILE = [
    *(
        " blanks ",
        "a,b",
        'quo"ted',
        "row\ng,0,9",
        "row\rg",
        "\x1b[31mred\x1b]0;title\x07",
        "\u202egnp.exe",
        "line\u2028end",
    ),
    *("nul\0", "\ufeffmark", "tab\tbed", "c1\x9b31m"),
]


def test_names_of_groups_forge_no_row_and_no_colour_and_come_back_from_the_file(
    odradek: Odradek, kafka: Any, topic: str, tmp_path: Path
) -> None:
    names = [f"{each}{topic}" if each.isprintable() else f"{topic}{each}" for each in HOSTILE]
    with kafka.admin() as admin:
        for number, name in enumerate(names, 1):
            admin.alter_group_offsets(name, {(topic, 0): number % 10})
    for arguments in (["list"], ["describe", *names], ["describe", "--state", *names], ["offsets", *names]):
        shown = odradek(*arguments).stdout
        assert all(line.isprintable() for line in shown.split("\n")), shown
        assert all(one_line(name) in shown for name in names)
    for line in odradek("list", "--json").stdout.split("\n"):
        assert line.isprintable()
    file = tmp_path / "offsets.csv"
    exported = odradek("reset", *names, "--all-topics", "--to-current", "--export").stdout_bytes
    file.write_bytes(exported)
    with kafka.admin() as admin:
        for name in names:
            admin.alter_group_offsets(name, {(topic, 0): 0})
        odradek("reset", "--all-groups", "--from-file", str(file), "--execute")
        found = admin.list_group_offsets(names)
    assert [found[name][topic, 0].offset for name in names] == [number % 10 for number in range(1, len(names) + 1)]
    for arguments in (["reset", *names, "--all-topics", "--to-latest"], ["delete", *names]):
        shown = odradek(*arguments).output
        assert all(line.isprintable() for line in shown.split("\n")), shown


def test_exported_offsets_of_two_groups_are_restored_from_the_file(
    odradek: Odradek, topic: str, group: str, tmp_path: Path
) -> None:
    odd = f'{group}, "the other"'
    odradek("reset", group, odd, "-t", topic, "--to-offset", "5", "--execute")
    one = odradek("reset", group, "--all-topics", "--to-current", "--export").stdout
    assert one.splitlines() == [f"{topic},{number},5" for number in range(3)]
    file = tmp_path / "plan.csv"
    file.write_text(odradek("reset", group, odd, "--all-topics", "--to-current", "--export").stdout)
    assert len(file.read_text().splitlines()) == 6
    odradek("reset", group, odd, "-t", topic, "--to-latest", "--execute")
    odradek("reset", "--all-groups", "--from-file", str(file), "--execute")
    for each in (group, odd):
        assert committed(odradek, each) == {0: 5, 1: 5, 2: 5}
    odradek("reset", group, "--from-file", "-", "--execute", stdin=f"{topic},1,3\n")
    assert committed(odradek, group) == {0: 5, 1: 3, 2: 5}
    assert f"group {odd!r} has no line in" in odradek(
        "reset", group, odd, "--from-file", "-", stdin=f'{group},{topic},1,3\n', fails=1
    ).stderr  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            "{t},0,1\n{t},1,x\n\n{t},2\n",
            "line 2 has the offset 'x', which is not a number from 0; line 4 has 2 instead of 3 or 4 fields; each",
        ),
        ("{t},0,1\n{t},9,1\n", "line 2: there is no partition {t}-9: {t} has 0 to 2"),
        ("{t},0,1\nnope,0,1\n", "line 2: there is no topic 'nope'"),
    ],
)
def test_a_file_with_bad_lines_changes_nothing_and_names_them(
    odradek: Odradek, topic: str, group: str, tmp_path: Path, plan: str, said: str
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(plan.format(t=topic))
    output = odradek(
        "reset", group, "--from-file", str(file), "--execute", fails=1 if "there is no" in said else 2
    ).output
    assert output.startswith(f"odradek: {file}: {said.format(t=topic)}")
    assert output.count("\n") == 1
    odradek("offsets", group, fails=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "{t}:9", "--to-latest"], "there is no partition {t}-9: {t} has 0 to 2"),
        (["-t", "{t}", "-t", "nope", "--to-latest"], "there is no topic 'nope'"),
        (
            ["-t", "{t}", "--shift-by", "1"],
            "group '{t}': {t}-0 has no committed offset that could be shifted; give --to-",
        ),
        (["--all-topics", "--to-latest"], "group '{t}' has no committed offsets, or does not exist; name topics"),
    ],
)
def test_impossible_resets_are_refused_in_one_sentence(
    odradek: Odradek, topic: str, group: str, arguments: list[str], said: str
) -> None:
    result = odradek("reset", group, *(each.format(t=topic) for each in arguments), "--execute", fails=1)
    assert result.stderr.splitlines()[-1].startswith("odradek: " + said.format(t=topic))
    assert result.stdout == ""


def test_all_topics_leaves_out_partitions_without_a_leader_and_says_so() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        survivor = cluster.leader("t", 0)
        assert survivor is not None
        line = ["--bootstrap-server", cluster.address(survivor)]
        first = CliRunner().invoke(main, ["groups", "reset", "g", "-t", "t", "--to-latest", "--execute", *line])
        assert first.exit_code == 0, first.output
        cluster.kill(1 - survivor)
        result = CliRunner().invoke(main, ["groups", "reset", "g", "--all-topics", "--to-earliest", *line])
        assert "odradek: t-1 has no leader or does not exist, and is left out\n" in result.stderr
        assert [row[:3] for row in rows(result)[1:]] == [["g", "t", "0"]]


# ---- watch ----------------------------------------------------------------------------------------------------------


def test_watch_prints_a_block_an_interval_without_a_terminal(
    odradek: Odradek, kafka: Any, topic: str, group: str
) -> None:
    with member(kafka.bootstrap_servers, group, topic):
        shown = odradek("watch", group, "-i", "0.1", "-c", "2").stdout.splitlines()
        head, second, columns, only, nothing, again, *_ = shown
        assert head.startswith(f"group {group}  state Stable  generation 1  members 1  lag - (-/s)")
        assert second == f"assignor range  coordinator {kafka.bootstrap_servers} (0)"
        assert columns.split()[:2] == ["CONSUMER-ID", "CLIENT-ID"]
        assert only.split()[1:] == ["one", "/127.0.0.1", "3", "-", "-", f"{topic}(0,1,2)"]
        assert (nothing, again) == ("", head)
        objects = lines(odradek("watch", "--group", group, "-i", "0.1", "-c", "3", "--json"))
        assert [(each["group_state"], each["generation"], len(each["members"])) for each in objects] == [
            ("Stable", 1, 1)
        ] * 3
        per_partition = rows(odradek("watch", group, "-c", "1", "--partitions"))
        assert [row[:2] for row in per_partition[3:6]] == [[topic, "0"], [topic, "1"], [topic, "2"]]
    assert odradek("watch", "nobody", fails=1).output == (
        "odradek: there is no group 'nobody'; `odradek groups list` shows the groups" + TREE + "\n"
    )


def test_watch_ends_silently_on_ctrl_c(shell: Any, odradek: Odradek, topic: str, group: str) -> None:
    odradek("reset", group, "-t", topic, "--to-earliest", "--execute")
    process = shell.start("groups", "watch", group, "--json", "-i", "0.1")
    for lag in (30, 30):
        assert json.loads(process.stdout.readline())["lag"] == lag
    odradek("reset", group, "-t", topic, "--to-latest", "--execute")
    eventually(lambda: json.loads(process.stdout.readline())["lag"] == 0, within_s=DEADLINE_S)
    odradek("delete", group)
    eventually(lambda: "group_state" not in json.loads(process.stdout.readline()), within_s=DEADLINE_S)
    code, _, err = shell.end(process, signal.SIGINT)
    assert (code, err) == (130, b"")


def test_watch_redraws_a_terminal_in_place_and_leaves_it_as_it_was(odradek: Odradek, kafka: Any, topic: str) -> None:
    odradek("reset", topic, "-t", topic, "--to-earliest", "--execute")
    terminal, end = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "odradek",
        "groups",
        "watch",
        topic,
        "-i",
        "0.1",
        "--bootstrap-server",
        kafka.bootstrap_servers,
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=subprocess.PIPE, env=environment) as process:
        os.close(end)
        shown = b""

        def read() -> bytes:
            nonlocal shown
            try:
                shown += os.read(terminal, 65_536)
            except OSError:  # the other end is closed
                return b""
            return shown

        # Up to the first line and erase it, three times.
        eventually(lambda: read().count(b"\x1b[1A\x1b[2K") >= 6, within_s=DEADLINE_S)
        process.send_signal(signal.SIGINT)
        while before := len(shown):
            read()
            if len(shown) == before:
                break
        assert process.wait(DEADLINE_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(terminal)
    assert b"state Empty" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is hidden"


def test_watch_goes_on_with_the_next_coordinator(shell: Any) -> None:
    with Cluster(brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", partitions=2)
        with member(servers, "g", "t"):
            shell.servers = servers
            process = shell.start("groups", "watch", "g", "--json", "-i", "0.2")
            before = json.loads(process.stdout.readline())
            assert (before["group_state"], before["generation"]) == ("Stable", 1)
            cluster.kill(before["coordinator"])

            def moved() -> bool:
                now = json.loads(process.stdout.readline())
                return now["coordinator"] != before["coordinator"] and now["error"] is None

            assert eventually(moved, within_s=DEADLINE_S)
            assert shell.end(process, signal.SIGINT)[0] == 130
