"""The command line as a process: what it prints, what it exits with, how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from odradek import cli
from odradek.testing import eventually


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_help_lists_the_commands_and_imports_none_of_them(lonely_shell: Any) -> None:
    """`odradek --help` is to be there at once: nothing of the protocol is loaded for it."""
    shown = lonely_shell.run("--help")
    assert all(name in shown for name in ("serve", "topics", "groups", "produce", "consume"))
    code = (
        "import sys\nfrom odradek.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'odradek.model', 'odradek.clients', 'asyncio', 'rich', 'numpy', 'kio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_a_client_imports_neither_the_keys_of_brokers_nor_hypothesis() -> None:
    code = "import sys, odradek.clients.producer; print(*sys.modules)"
    code += "; import hypothesis"  # kio, which would import it, hides it no longer
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert "odradek.config.definition" in imported
    assert not {"odradek.config.broker", "odradek.config.topic", "hypothesis"} & imported


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_examples_stand_on_lines_of_their_own(lonely_shell: Any, command: str) -> None:
    shown = [line.strip() for line in lonely_shell.run_here(command, "--help").splitlines()]
    assert sum(line.startswith("odradek ") for line in shown) == 3
    assert not any("\\b" in line for line in shown)


def test_a_wrong_command_or_option_is_a_usage_error(lonely_shell: Any) -> None:
    assert "No such command 'topik'" in lonely_shell.run_here("topik", code=2)
    assert "No such option" in lonely_shell.run_here("topics", "list", "--nope", code=2)
    assert "Missing argument" in lonely_shell.run_here("consume", code=2)


def test_an_unreachable_broker_is_one_line_that_names_the_option(lonely_shell: Any, tmp_path: Path) -> None:
    patience = tmp_path / "client.properties"
    patience.write_text("default.api.timeout.ms=1\n")
    said = lonely_shell.run_here(
        "topics", "list", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(patience), code=1
    )
    assert said == (
        "odradek: no broker answers: broker 127.0.0.1:1: connection refused "
        "(is a broker running there? choose another address with --bootstrap-server)\n"
    )


def test_topics_are_created_listed_described_and_deleted(shell: Any) -> None:
    shell.run("topics", "create", "cli-t", "--partitions", "3", "--config", "retention.ms=86400000")
    assert "cli-t" in shell.run("topics", "create", "cli-t", code=1)
    assert shell.run("topics", "create", "cli-t", "--if-not-exists") == "topic cli-t exists\n"
    rows = [line.split() for line in shell.run("topics", "list").splitlines()]
    assert rows[0] == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert ["cli-t", "3", "1"] in rows
    listed = {topic["name"]: topic for topic in lines(shell.run("topics", "list", "--json"))}
    assert listed["cli-t"]["partition_count"] == 3
    described = shell.run("topics", "describe", "cli-t")
    assert "retention.ms=86400000" in described
    (topic,) = lines(shell.run("topics", "describe", "cli-t", "--json"))
    assert topic["configs"] == {"retention.ms": "86400000"}
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    assert {tuple(each["isr"]) for each in topic["partitions"]} == {(0,)}
    shell.run("topics", "delete", "cli-t")
    assert "there is no topic 'cli-t'" in shell.run("topics", "describe", "cli-t", code=1)
    assert "there is no topic 'cli-t'" in shell.run("topics", "delete", "cli-t", code=1)
    shell.run("topics", "delete", "cli-t", "--if-exists")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "create", "t-of-nobody", "--config", "nope=1"], "nope"),
        (["topics", "list", "--command-config", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (["consume", "there-is-none", "-e"], "there is no topic 'there-is-none'"),
        (["groups", "describe", "nobody"], "there is no group 'nobody'"),
    ],
)
def test_an_error_is_one_line_that_names_its_cause(shell: Any, arguments: list[str], said: str) -> None:
    printed = shell.run(*arguments, code=2 if "--command-config" in arguments else 1)
    assert said in printed
    assert printed.startswith("odradek: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--offset", "soon"],
        ["consume", "t", "--from-beginning", "--offset", "3"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t:0", "--group", "g"],
        ["consume", "t:0", "--partition", "1"],
        ["consume", "t", "-X", "group.id=g", "-o", "end"],
        ["consume", "t", "-f", "%s", "-K", ":"],
        ["consume", "t", "--json", "-Z"],
        ["consume", "t", "-f", "%q"],
        ["produce", "t", "-k", "a", "-K", ":"],
        ["produce", "t", "--json", "-K", ":"],
        ["produce", "t", "--keep-partitions"],
        ["produce", "t", "--json", "--keep-partitions", "-p", "0"],
        ["produce", "t", "--lines"],
        ["produce", "t:0,1"],
        ["produce", "t", "-X", "linger.ms=1", "-X", "linger.ms=2"],
        ["topics", "create", "t", "-c", "retention.ms=1", "-c", "retention.ms=2"],
        ["produce", "t", "-H", "novalue"],
        ["produce", "t", "-D", ""],
        ["topics", "create", "t", "--partitions", "0"],
    ],
)
def test_contradicting_options_are_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.main, [*arguments, "--bootstrap-server", "127.0.0.1:1"], prog_name="odradek")
    assert (result.exit_code, "Usage: odradek" in result.stderr) == (2, True), result.output


def test_produced_lines_are_consumed_unchanged(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    data = b"".join(b"line %d\n" % number for number in range(5_000)) + b"without an end"
    shell.run("produce", name, "--compression", "zstd", stdin=data)
    assert shell.run("consume", name, "--from-beginning", "--exit-eof").encode() == data + b"\n"


def test_keys_headers_and_nulls(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin=b"k:v\nk2:\n:v3\nplain\n")
    shown = shell.run("consume", name, "--from-beginning", "-e", "-Z", "-f", r"%o %k[%K] %s[%S] %h\n")
    assert shown.splitlines() == [
        "0 k[1] v[1] a=1,b=2",
        "1 k2[2] NULL[-1] a=1,b=2",
        "2 NULL[-1] v3[2] a=1,b=2",
        "3 NULL[-1] plain[5] a=1,b=2",
    ]
    assert shell.run("consume", name, "-o", "0", "-c", "1", "-K", " -> ") == "k -> v\n"


def test_a_file_is_one_record_unless_its_lines_are(shell: Any, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic()
    file = tmp_path / "two"
    file.write_bytes(b"a\nb\n")
    shell.run("produce", name, str(file), "--key", "k")
    shell.run("produce", name, str(file), "--lines")
    shown = shell.run("consume", name, "--from-beginning", "-e", "-f", "%k=%s;")
    assert shown == "k=a\nb\n;=a;=b;"


def test_consume_starts_at_the_given_offset(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"".join(b"%d\n" % number for number in range(100)))

    def first(*arguments: str) -> str:
        return shell.run("consume", name, "-e", "-c", "1", *arguments).strip()

    assert first("-o", "beginning") == "0"
    assert first("-o", "40") == "40"
    assert first("-o", "-3") == "97"
    assert first("-o", "@0") == "0"
    assert first("-o", "end") == ""
    assert first("-o", "@99999999999999") == ""
    assert first("-p", "0", "-o", "7") == "7"
    assert shell.run("consume", f"{name}:0", "-o", "40:42").split() == ["40", "41"]
    assert shell.run("consume", name, "-o", "-3..99").split() == ["97", "98"]
    assert shell.run("consume", name, "-o", "@PT1H..end").split() == [str(number) for number in range(100)]
    assert shell.run("consume", name, "-o", "40..@0") == ""
    assert f"no offset 500 yet: {name}-0 ends at 100" in shell.run("consume", name, "-o", "500", "-e", code=1)
    two = topic(2)
    for number in ("0", "1"):
        shell.run("produce", f"{two}:{number}", stdin=f"{number}\n".encode())
    assert sorted(shell.run("consume", f"{two}:0", f"{two}:1", "-o", "..end").split()) == ["0", "1"]
    assert "no partition 9, only 1" in shell.run("consume", name, "-p", "9", "-e", code=2)


def test_json_of_one_topic_is_produced_to_another(shell: Any, topic: Callable[..., str]) -> None:
    source, target = topic(2), topic(2)
    shell.run("produce", source, "-K", "=", "-H", "h=x", stdin=b"".join(b"%d=v%d\n" % (n, n) for n in range(20)))
    printed = shell.run("consume", source, "--from-beginning", "-e", "--json")
    shell.run("produce", target, "--json", "--keep-partitions", stdin=printed.encode())
    again = shell.run("consume", target, "--from-beginning", "-e", "--json")

    def essence(text: str) -> list[Any]:
        names = ("partition", "offset", "timestamp", "key", "value", "headers")
        return sorted([[record[name] for name in names] for record in lines(text)], key=str)

    assert len(lines(printed)) == 20
    assert essence(printed) == essence(again)
    assert "is not a record in JSON" in shell.run("produce", target, "--json", stdin=b"{}x\n", code=1)


def test_keys_and_values_are_read_and_written_in_a_format(shell: Any, topic: Callable[..., str]) -> None:
    name = topic(2)
    text = b'aw==|{"a": 1}\n'
    shell.run("produce", f"{name}:1", "-K", "|", "--key-format", "base64", "--value-format", "json", stdin=text)
    shell.run("produce", f"{name}:1", stdin=b"plain\n")
    (first, second) = lines(shell.run("consume", f"{name}:1", "-o", "..", "-e", "--json", "--value-format", "json"))
    assert (first["key"], first["value"], first["partition"]) == ("k", {"a": 1}, 1)
    assert (second["value"], "value_error" in second) == ("plain", True)
    assert shell.run("consume", name, "-o", "..", "-c", "1", "-K", " ", "--key-format", "base64") == 'aw== {"a": 1}\n'
    assert "a value is not json: 'plain'" in shell.run(
        "produce", name, "--value-format", "json", stdin=b"plain\n", code=1
    )
    assert "did you mean 'value'" in shell.run("produce", name, "--json", stdin=b'{"vlaue":"v"}\n', code=1)


def test_a_group_resumes_at_its_committed_offset_and_shows_its_lag(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"".join(b"%d\n" % number for number in range(50)))
    group = f"group-of-{name}"
    first = shell.run("consume", name, "-g", group, "--from-beginning", "-c", "30")
    assert first.split() == [str(number) for number in range(30)]
    (described,) = lines(shell.run("groups", "describe", group, "--json"))
    (partition,) = described["partitions"]
    assert (partition["committed_offset"], partition["end_offset"], partition["lag"]) == (30, 50, 20)
    assert described["lag"] == 20
    assert "lag 20" in shell.run("groups", "describe", group)
    assert group in {each["group_id"] for each in lines(shell.run("groups", "list", "--json"))}
    rest = shell.run("consume", name, "-g", group, "-e")
    assert rest.split() == [str(number) for number in range(30, 50)]


def test_properties_reach_the_client(shell: Any, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic()
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={shell.servers}\nlinger.ms=1\nauto.offset.reset=earliest\n")
    shell.run_here("produce", name, "--command-config", str(config), stdin=b"v\n")
    assert shell.run_here("consume", name, "-c", "1", "-g", name, "--command-config", str(config)) == "v\n"


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_consumer_silently_after_it_leaves_its_group(
    shell: Any, topic: Callable[..., str], sign: signal.Signals, code: int
) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"1\n2\n")
    group = f"group-of-{name}-{code}"
    process = shell.start("consume", name, "-g", group, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() + process.stdout.readline() == b"1\n2\n"
    returned, out, err = shell.end(process, sign)
    assert (returned, out, err) == (code, b"", b"")
    (described,) = lines(shell.run("groups", "describe", group, "--json"))
    assert (described["group_state"], described["members"], described["lag"]) == ("Empty", [], 0)


def test_ctrl_c_in_a_producer_says_how_many_records_were_acknowledged(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    process = shell.start("produce", name, stdin=subprocess.PIPE)
    process.stdin.write(b"1\n2\n3\nnot yet a line")
    process.stdin.flush()
    assert shell.run("consume", name, "--from-beginning", "-c", "3").split() == ["1", "2", "3"]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    said = process.stderr.read().decode()
    numbers = re.fullmatch(r"odradek: (\d) records were acknowledged, (\d) were not\n", said)
    assert numbers is not None, said
    assert sum(map(int, numbers.groups())) == 3, "the last one's acknowledgement may be on its way"


def test_a_closed_pipe_ends_a_consumer_silently(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"x" * 100 + b"\n" + b"y\n" * 200_000)
    process = shell.start("consume", name, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() == b"x" * 100 + b"\n"
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_closed_pipe_ends_a_consumer_that_has_nothing_to_write(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"1\n2\n")
    process = shell.start("consume", name, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_closed_pipe_ends_a_view_of_a_group_silently(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    shell.run("produce", name, stdin=b"1\n")
    shell.run("consume", name, "-g", f"group-of-{name}", "--from-beginning", "-c", "1")
    process = shell.start("groups", "watch", f"group-of-{name}", "--interval", "0.1")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"group group-of-")
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_an_input_without_records_writes_nothing(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    with open(os.devnull, "rb") as nothing:
        process = shell.start("produce", name, stdin=nothing)
        assert (process.communicate(timeout=60), process.returncode) == ((b"", b""), 0)
    assert shell.run("consume", name, "-o", "..end") == ""


def test_lines_from_a_pipe_are_sent_as_they_arrive(shell: Any, topic: Callable[..., str]) -> None:
    """An open pipe must not hold records back: a producer at the end of one runs for days."""
    name = topic()
    process = shell.start("produce", name, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\nhalf a li")
    process.stdin.flush()
    eventually(lambda: shell.run("consume", name, "--from-beginning", "-e") == "first\n", within_s=60)
    process.stdin.write(b"ne\n")
    process.stdin.close()
    assert process.wait(60) == 0
    assert shell.run("consume", name, "--from-beginning", "-e") == "first\nhalf a line\n"
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_progress_bar_is_for_terminals_only(shell: Any, topic: Callable[..., str]) -> None:
    name = topic()
    near, far = os.openpty()
    try:
        process = subprocess.run(
            [sys.executable, "-c", "from odradek.cli import main; main()", "produce", name, "-b", shell.servers],
            input=b"v\n" * 3_000,
            stdout=subprocess.PIPE,
            stderr=far,
            timeout=60,
            check=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        shown = os.read(near, 65_536)
    finally:
        os.close(near)
        os.close(far)
    assert process.stdout == b""
    assert f"producing to {name}"[:20].encode() in shown
    assert b"records" in shown


def test_a_terminal_gets_no_control_characters_of_records_and_a_pipe_gets_every_byte(
    shell: Any, topic: Callable[..., str]
) -> None:
    name, value = topic(), b"a\x1b[31m\tb\x07\xff \xe2\x80\xaec \xc3\xa4\n"
    shell.run("produce", name, stdin=value)
    near, far = os.openpty()
    try:
        command = [sys.executable, "-m", "odradek", "consume", name, "--from-beginning", "-e", "-b", shell.servers]
        assert subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout == value
        subprocess.run(command, stdout=far, timeout=60, check=True)
        shown = os.read(near, 65_536)
    finally:
        os.close(near)
        os.close(far)
    assert shown.replace(b"\r\n", b"\n").decode() == "a␛[31m\tb␇\\xff \\u202ec ä\n"


def test_ctrl_c_ends_a_command_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: interrupted)
    monkeypatch.setattr(cli, "_odradek_error", lambda: pytest.fail("errors are imported, which takes a while"))
    result = CliRunner().invoke(cli.main, ["topics"])
    assert (result.exit_code, result.output) == (130, "")


def test_an_error_of_the_system_without_a_text_is_named_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise TimeoutError

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    assert CliRunner().invoke(cli.main, ["topics"]).stderr == "odradek: TimeoutError\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t", "--threads", "2"), "need --zookeeper"),
        (("t", "--whitelist", "t", "--zookeeper", "sqlite:///x"), "only one of them"),
        (("--zookeeper", "sqlite:///x"), "Missing argument 'TOPIC...'"),
        (("t", "--zookeeper", "sqlite:///x", "-e"), "--zookeeper and --exit-eof exclude"),
        (("t:0", "--zookeeper", "sqlite:///x"), "a group decides on partitions"),
    ],
)
def test_options_of_generation_1_that_contradict_are_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(cli.main, ["consume", *arguments])
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_a_consumer_of_generation_1_creates_no_tree(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/metadata.sqlite"
    result = CliRunner().invoke(cli.main, ["consume", "t", "--zookeeper", url])
    assert (result.exit_code, "there is no metadata database" in result.output) == (1, True)
    result = CliRunner().invoke(
        cli.main, ["consume", "t", "--zookeeper", url, "-X", "partition.assignment.strategy=foo"]
    )
    assert (result.exit_code, list(tmp_path.iterdir())) == (1, [])


# ---- Closed standard files -------------------------------------------------------------------------------------------

DEADLINE_S: Final = 60


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["topics", "list"], ["produce", "t"], ["consume", "t"]])
def test_a_command_with_closed_standard_files_exits_as_usual(arguments: list[str], tmp_path: Path) -> None:
    patience = tmp_path / "client.properties"
    patience.write_text("default.api.timeout.ms=1\nmax.block.ms=1\n")
    where = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(patience)]
    command = [sys.executable, "-m", "odradek", *arguments, *where]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    assert done.stderr.startswith("odradek: ")


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--help"], ["topics", "--help"]])
def test_a_help_text_without_a_reader_exits_as_by_sigpipe(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "odradek", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(DEADLINE_S)) == (b"", 141)
