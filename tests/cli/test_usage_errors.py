"""Values of a wrong form: every command refuses them with exit code 2 and its usage, before it connects to anything."""

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from odradek.cli import main

WRONG = """
serve --listen localhost:99999
serve --listen localhost
serve --advertise nowhere
serve --metrics-listen x
serve --page 127.0.0.1
serve -o KEY
serve -o num.partitions=many
serve --metadata mysql://x
serve --metadata x
serve --broker-id x
up -o KEY
up -o num.partitions=many
up --metadata mysql://x
up --metadata memory:
up --brokers 0
up --brokers 3 --port 65535
up --page x
up -o broker.id=1
page --listen x
page --metadata mysql://x
topics list -b localhost
topics list -b localhost:x
topics list -b localhost:99999
topics create t/u
topics create t -c KEY
topics create t --partitions x
topics alter t -c KEY
produce t -b localhost
produce t -z brotli
produce t --acks 2
produce t -X KEY
produce t -X nosuch.key=1
produce t/u
produce t:x
produce t -H KEY
produce t -D ''
consume t -b localhost
consume t:x
consume t -X KEY
consume t -X nosuch.key=1
consume t -o middle
consume --zookeeper mysql://x t -g g
groups list --state Sleeping
groups list --type x
groups offsets-delete g -t t:x
groups reset g -t t:x --to-earliest
groups reset g --all-topics --by-duration x
groups reset g --all-topics --to-datetime x
groups reset g --all-topics --shift-by x
groups tree --metadata mysql://x
groups migrate g --to kafka --metadata mysql://x
configs alter --topic t --set KEY
configs alter --topic t --append KEY
configs alter --broker x --set a=b
acls add alice Read Topic:t
acls add User:alice Fly Topic:t
acls add User:alice Read t
acls add User:alice Read Moon:t
acls list --principal alice
acls list --resource t
acls list --operation Fly
acls explain User:alice Read t
partitions describe t:x
partitions offsets t:x
partitions offsets t --at whenever
partitions elect -t t:x
partitions reassign -t t:x -r 1,2
partitions reassign -t t:0 -r x
partitions delete-records t:x --before 3
partitions producers t
partitions abort-transaction t --producer-id 1
brokers features --upgrade x
brokers features --upgrade transaction.version=x
users add alice --iterations 1
users add alice --mechanism MD5
users add alice --metadata mysql://x
quotas set consumer_byte_rate
quotas set --user a consumer_byte_rate=fast
metadata ls --metadata mysql://x
metadata accept-loss t --metadata memory:
metadata forget-directory x --metadata memory:
metadata adopt d --metadata mysql://x
lab assign -t t=x -m 2
lab assign -t t -m 2
lab assign -t t=3
lab assign -t t=3 -m 0
lab assign -t t=3 -m 2 -s rnage
lab assign -t t=3 -m 2 --owned x
lab assign -t t=3 -m 2 --rack x=
lab assign -t t=3 -m 2 --replica-rack x
lab assign -t t=3 -m 2 --instance x
lab assign -t t=3 -m 2 --threads x
lab compare -t t=3 -m 2 -s rnage
lab compare -t t=3 -m 2 --members a=u
lab what-if -t t=3 -m 2
lab what-if -t t=3 -m 2 --to-strategy rnage
lab what-if -t t=3 -m 2 -s rnage --add-member 1
lab generations --members 0
lab sweep nosuch.toml
sim --seeds x
sim --seeds 5..1
sim --workload x
sim --conf KEY --seeds 0..1 --master local
pipeline run a.toml --metrics-listen x
pipeline run a.toml --conf KEY
""".strip().splitlines()


@pytest.mark.parametrize("line", WRONG)
def test_a_value_of_a_wrong_form_is_a_usage_error(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(line)
    result = CliRunner().invoke(main, arguments, prog_name="odradek")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Usage: odradek "), result.stderr
    assert "\nError: " in result.stderr
    assert list(tmp_path.iterdir()) == [], "a refused command makes no file"


def test_no_help_text_shows_markup() -> None:
    shown = []

    def walk(command: click.Command, context: click.Context) -> None:
        shown.append(command.get_help(context))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                walk(found, click.Context(found, info_name=name, parent=context))

    walk(main, click.Context(main, info_name="odradek"))
    assert len(shown) > 60
    assert [text for text in shown if "\\b" in text or "\b" in text or "``" in text] == []


@pytest.mark.parametrize("text", ["ssl.key.password:hunter2", "=hunter2", "hunter2"])
@pytest.mark.parametrize("command", [["serve", "-o"], ["produce", "t", "-X"], ["topics", "create", "t", "-c"]])
def test_a_value_without_its_key_is_not_shown_because_it_may_be_a_secret(command: list[str], text: str) -> None:
    result = CliRunner().invoke(main, [*command, text])
    assert result.exit_code == 2
    assert "hunter2" not in result.output
