"""Wrong arguments, settings and files: every command refuses them with exit code 2, before it connects to anything."""

import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from odradek.cli import log_lines, main
from odradek.model import ErrorCode, KafkaError, explained

WRONG = r"""
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
serve --config nosuch
serve --config wrong.properties --data-dir d
serve --config latin --data-dir d
serve --config dir --data-dir d
serve --listen 0.0.0.0:0 --data-dir d
serve --data-dir ''
serve -o listeners=x --data-dir d
serve -o no.such=1 --data-dir d
serve -o listeners=PLAINTEXT://a:1,PLAINTEXT://b:1 --data-dir d
serve -o inter.broker.listener.name=X --data-dir d
serve -o replica.selector.class=x --data-dir d
serve -o authorizer.class.name=x --data-dir d
serve -o super.users=alice --data-dir d
serve --metadata zookeeper:// --data-dir d
serve --metadata zookeeper://a:x --data-dir d
serve -o zookeeper.connect=a:x --data-dir d
serve --page 127.0.0.1:0 -o listeners=SSL://127.0.0.1:0 --data-dir d
serve --page 0.0.0.0:0 --listen 127.0.0.1:0 --data-dir d
serve --broker-id -1
serve --log-level x
serve --log-format x
serve --broker-id 99999999999 --data-dir d
up -o KEY
up -o num.partitions=many
up --metadata mysql://x
up --metadata memory:
up --brokers 0
up --brokers 3 --port 65535
up --page x
up -o broker.id=1
up --config nosuch
up --config wrong.properties
up --data-dir text
up --page 0.0.0.0:0 --data-dir d
up --secure d --config bad.properties --data-dir d
up --metadata zookeeper:// --data-dir d
up --metadata zookeeper://a:x --data-dir d
up -o no.such=1 --data-dir d
up --secure text --data-dir d
up --port 70000
page --listen x
page --metadata mysql://x
page --role x
page --mask '/(/'
page --schema x
page --schema t=avro:nosuch
page --schema t=avro:text
page --schema t=protobuf:text
page --tls-certificate nosuch
page --tls-certificate text
page --tls-certificate latin
page --tls-certificate text --tls-key nosuch
page --pipelines nosuch
page --cluster nosuch
page --cluster a=nosuch
page --metadata memory: --listen 127.0.0.1:0
page --metadata zookeeper:// --listen 127.0.0.1:0
page --metadata sqlite:///x --zookeeper-config nosuch
page --login --listen 127.0.0.1:0 -b 127.0.0.1:1
page --listen 0.0.0.0:0
page --command-config nosuch
topics list -b localhost
topics list -b localhost:x
topics list -b localhost:99999
topics create t/u
topics create t -c KEY
topics create t --partitions x
topics alter t -c KEY
topics create a/b
topics create t -r 0
topics describe a/b
topics describe ''
topics alter a/b -p 3
topics alter a/b -c retention.ms=5
topics delete a/b
topics create t -c =1
topics list --profile nosuch
topics list --command-config nosuch
topics list --timeout x
topics list --timeout 0
topics nosuch
topics create t -p 99999999999
topics create t -r 99999
topics alter t -p 2147483648
topics list --timeout nan
topics list --timeout soon
produce t -b localhost
produce t -z brotli
produce t --acks 2
produce t -X KEY
produce t -X nosuch.key=1
produce t/u
produce t:x
produce t -H KEY
produce t -D ''
produce t -X linger.ms=soon
produce t -X acks=7
produce t -X enable.idempotence=true -X acks=0
produce t -X bootstrap.servers=x
produce t -X compression.type=br
produce t --partitioner nosuch
produce t --partitioner no.such.module:X
produce t -X partitioner.class=nosuch
produce t -X interceptor.classes=no.such:X
produce t -X security.protocol=SASL_SSL
produce t -X security.protocol=FOO
produce t --command-config nosuch.properties
produce t --command-config bad.properties
produce t --command-config val.properties
produce t --command-config dir
produce t --profile nosuch
produce t nosuchfile
produce a/b
produce t --key-format avro
produce t -K ''
produce t -D '\x'
produce t -K '\q'
produce t -p 99999999999
consume t -b localhost
consume t:x
consume t -X KEY
consume t -X nosuch.key=1
consume t -o middle
consume --zookeeper mysql://x t -g g
consume t -X fetch.min.bytes=soon
consume t -X auto.offset.reset=middle
consume t -X group.protocol=foo -g g
consume t -X isolation.level=foo
consume t -X partition.assignment.strategy=rnage -g g
consume a/b
consume a/b -g g
consume t:0,x
consume t -o 5..3
consume t -o @yesterday
consume t -f '%q'
consume t -D '\q'
consume t --value-format avro
consume t --value-schema nosuch.avsc --value-format avro
consume t --value-schema text --value-format avro
consume t --value-schema text --value-format protobuf
consume t --value-schema text:M --value-format protobuf
consume t --value-schema nosuch:M --value-format protobuf
consume --zookeeper memory: t -g g
consume --zookeeper sqlite:///x t -g a/b
consume --zookeeper sqlite:///x a/b -g g
consume --zookeeper sqlite:///x t -g g -X consumer.timeout.ms=0
consume --zookeeper sqlite:///x t -g g -X zookeeper.session.timeout.ms=x
consume --zookeeper zookeeper:// t -g g
consume --zookeeper zookeeper://a:x t -g g
consume --zookeeper zookeeper://a:1/.. t -g g
consume --zookeeper zookeeper://a:1 t -g g --zookeeper-config nosuch
consume t -p 99999999999
consume t -c 99999999999
consume --zookeeper sqlite:///x t -g g --threads 99999999999
groups list --state Sleeping
groups list --type x
groups offsets-delete g -t t:x
groups reset g -t t:x --to-earliest
groups reset g --all-topics --by-duration x
groups reset g --all-topics --to-datetime x
groups reset g --all-topics --shift-by x
groups tree --metadata mysql://x
groups migrate g --to kafka --metadata mysql://x
groups offsets-delete g -t a/b
groups reset g -t a/b --to-earliest
groups reset g -t t --from-file nosuch
groups tree a/b --data-dir x
groups tree a/b --metadata sqlite:///x
groups tree --metadata memory:
groups tree --metadata zookeeper://
groups migrate a/b --to kafka --metadata sqlite:///x
groups migrate g --to kafka --metadata memory:
groups watch g --interval x
groups waiting g --interval 0
groups history g --limit 0
groups remove-members g
groups reset g -t t:0 --to-offset 99999999999999999999
configs alter --topic t --set KEY
configs alter --topic t --append KEY
configs alter --broker x --set a=b
configs describe --topic a/b
configs alter --topic a/b --set retention.ms=5
configs describe --topic ''
configs describe --broker 99999999999
acls add alice Read Topic:t
acls add User:alice Fly Topic:t
acls add User:alice Read t
acls add User:alice Read Moon:t
acls list --principal alice
acls list --resource t
acls list --operation Fly
acls explain User:alice Read t
acls add User:alice Read Topic:a/b
acls add User:alice Read Topic:t --host ''
acls add User: Read Topic:t
acls add User:alice Read cluster:foo
acls add User:alice any topic:t
partitions describe t:x
partitions offsets t:x
partitions offsets t --at whenever
partitions elect -t t:x
partitions reassign -t t:x -r 1,2
partitions reassign -t t:0 -r x
partitions delete-records t:x --before 3
partitions producers t
partitions abort-transaction t --producer-id 1
partitions describe a/b
partitions offsets a/b
partitions elect -t a/b
partitions elect --file bad.json
partitions elect --file nosuch
partitions elect --file text
partitions reassign -t a/b:0 -r 1
partitions reassign --file bad.json
partitions reassign --file latin
partitions reassign -t t:0 -r 1,1
partitions delete-records a/b --all
partitions delete-records --file bad.json
partitions producers a/b:0
partitions abort-transaction a/b:0 --producer-id 1 --producer-epoch 1
partitions delete-records t --before 99999999999999999999
partitions abort-transaction t:0 --producer-id 1 --producer-epoch 99999
brokers features --upgrade x
brokers features --upgrade transaction.version=x
brokers describe x
brokers log-dirs -t a/b
brokers features --upgrade x=1=2
brokers features --upgrade x=99999
brokers drain x
brokers unregister -1
brokers log-dirs 99999999999
brokers unregister 99999999999
brokers versions 99999999999
users add alice --iterations 1
users add alice --mechanism MD5
users add alice --metadata mysql://x
users add ''
users add alice --password-file nosuch
users add alice --password-file latin
users add alice --password-file dir
users add alice --metadata zookeeper:// --password-file text
users add alice --metadata memory: --password-file text
quotas set consumer_byte_rate
quotas set --user a consumer_byte_rate=fast
quotas set --user a no_such=1
quotas set --user a consumer_byte_rate=-1
quotas set --user a consumer_byte_rate=nan
quotas set --user a request_percentage=0
quotas set --ip x connection_creation_rate=1
quotas set --ip 1.2.3.4 consumer_byte_rate=1
quotas set --user a connection_creation_rate=1
quotas remove --user a no_such
quotas remove --ip x
quotas set --user a =1
transactions list --state Sleeping
transactions find-hanging a/b
transactions find-hanging t:x
metadata ls --metadata mysql://x
metadata accept-loss t --metadata memory:
metadata forget-directory x --metadata memory:
metadata adopt d --metadata mysql://x
metadata ls x --metadata sqlite:///x
metadata ls /x/ --metadata sqlite:///x
metadata ls //x --metadata sqlite:///x
metadata get x --metadata sqlite:///x
metadata get /x/.. --metadata sqlite:///x
metadata watch x --metadata sqlite:///x
metadata create x y --metadata sqlite:///x
metadata create /brokers/x y --metadata sqlite:///x
metadata create /config/topics/t y --metadata sqlite:///x
metadata set x y --metadata sqlite:///x
metadata set /config/topics/t y --metadata sqlite:///x
metadata delete x --metadata sqlite:///x
metadata delete /brokers --metadata sqlite:///x
metadata set-acls --metadata sqlite:///x
metadata set-acls --metadata zookeeper://a:1
metadata set-acls --metadata zookeeper://
metadata ls --metadata memory:
metadata ls --metadata zookeeper://a:x
metadata ls --metadata zookeeper://a --zookeeper-config nosuch
metadata accept-loss t/0-0 --broker-id 0 --metadata sqlite:///x
metadata adopt nosuch --metadata sqlite:///x
metadata adopt text --metadata sqlite:///x
metadata adopt dir --metadata sqlite:///dir/x
metadata adopt dir --metadata memory:
metadata accept-loss t-0 --broker-id 99999999999 --metadata sqlite:///x
metadata forget-directory x --broker-id 0 --metadata memory:
log dump nosuch
log dump text
log dump dir
log verify nosuch
log verify text
log verify dir
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
lab explain x -t t=3 -m 2
lab explain t-9 -t t=3 -m 2
lab explain u-0 -t t=3 -m 2
lab explain a/b-0 -t t=3 -m 2
lab assign -t a/b=3 -m 2
lab assign --file nosuch.toml
lab assign --file bad.toml
lab assign --file dir
lab assign -t t=3 -m 2 --picture x.png
lab assign -t t=3 -m 9999999
lab assign -t t=99999999 -m 2
lab assign -t t=3 -m a -s no.such:X
lab assign -t t=3 -m 2 --threads c9=2
lab what-if -t t=3 -m 2 --add-member x=u
lab what-if -t t=3 -m 2 --add-member 0
lab what-if -t t=3 -m 2 --remove-member nosuch
lab what-if -t t=3 -m 2 --add-partitions t=x
lab what-if -t t=3 -m 2 --add-partitions t=0
lab what-if -t t=3 -m 2 --add-partitions u=1
lab what-if -t t=3 -m 2 --add-topic a/b=1
lab what-if -t t=3 -m 2 --remove-topic u
lab what-if -t t=3 -m 2 --remove-rack nosuch
lab what-if -t t=3 -m 1 --remove-member c0
lab play fly
lab play 0:fly
lab play ''
lab play 0:join --partitions 99
lab play 0:join,0:leave-9
lab play 0:join --timeline x.png
lab play failover-9
lab generations --members 10 --partitions 5
lab generations --picture x.png
lab generations --timeline x.svg
lab replay g --window x
lab transaction --version 3
lab transaction --picture x.png
sim --seeds x
sim --seeds 5..1
sim --workload x
sim --conf KEY --seeds 0..1 --master local
sim --seeds 0..1 --faults x
sim --replay nosuch
sim --replay text
sim --seed 1 --minutes x
sim --seed 1 --workers 0
sim --seed 1 --master foo
sim --seed -1
pipeline run a.toml --metrics-listen x
pipeline run a.toml --conf KEY
pipeline run nosuch.toml
pipeline run bad.toml
pipeline run dir
pipeline check nosuch.toml
pipeline check --no-spark bad.toml
pipeline list nosuch.toml
pipeline status nosuch.toml
pipeline example nosuch
pipeline run bad.toml --memory x
pipeline run bad.toml --master foo
pipeline run bad.toml --threads 0
""".strip().splitlines()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Make files that commands cannot use, in the working directory; no broker runs, and there is no profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:1")
    texts = {
        "bad.csv": "a,b\n", "bad.json": "{}", "bad.properties": "x=\\u12\n", "bad.toml": "a=\n", "text": "hello",
        "val.properties": "request.timeout.ms=soon\n", "wrong.properties": "no.such=1\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "dir").mkdir()
    monkeypatch.setattr(log_lines, "configure", lambda *_: None)
    yield tmp_path
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_is_refused_before_the_command_changes_anything(line: str, given: Path) -> None:
    before = sorted(given.rglob("*"))
    result = CliRunner().invoke(main, shlex.split(line), prog_name="odradek")
    assert result.exit_code == 2, result.output
    text = result.stderr.splitlines()
    assert text[0].startswith("Usage: odradek ") or (len(text) == 1 and text[0].startswith("odradek: ")), text
    assert text[-1].startswith(("Error: ", "odradek: ")), text
    assert sorted(given.rglob("*")) == before, "a refused command makes no file"


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


# ---- Error codes -----------------------------------------------------------------------------------------------------

ACTIONS = {
    ErrorCode.not_leader_or_follower: "try again",
    ErrorCode.not_enough_replicas: "partitions describe --under-replicated",
    ErrorCode.topic_authorization_failed: "administrator",
    ErrorCode.group_id_not_found: "odradek groups list",
}


@pytest.mark.parametrize("code", ACTIONS)
def test_an_error_without_a_message_says_what_to_do(code: ErrorCode) -> None:
    text = str(KafkaError(code))
    assert text == explained(code)
    assert text.startswith(f"{code.name.upper()}: ")
    assert ACTIONS[code] in text


@pytest.mark.parametrize("code", [each for each in ErrorCode if each is not ErrorCode.none])
def test_a_code_is_kafkas_name_and_one_sentence_that_fits_a_line(code: ErrorCode) -> None:
    name, _, sentence = explained(code).partition(": ")
    assert name == code.name.upper()
    assert sentence
    assert not sentence.endswith(".")
    assert len(sentence) < 180


def test_the_reason_of_a_broker_is_preferred_to_the_sentence() -> None:
    assert explained(ErrorCode.invalid_record, "record 3 has no key") == "INVALID_RECORD: record 3 has no key"
