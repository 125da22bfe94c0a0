"""A pipeline's TOML file: what it means, and one line for each mistake (M11)."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from odradek.model import ConfigurationError
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.parsing import load_pipeline, parse_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline, MirrorPipeline, QueryPipeline, Trigger

REAL_TIME = """
kind = "real_time"
checkpoint = "state"
sql = "SELECT count(*) FROM flights"
[source]
bootstrap_servers = "localhost:9092"
[streams.flights]
topics = ["flights"]
[sink]
path = "out"
"""

MIRROR = """
kind = "mirror"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["flights"]
[target]
bootstrap_servers = "localhost:9093"
"""


def parse(text: str) -> AnyPipeline:
    return parse_pipeline(tomllib.loads(text), directory=Path("/jobs"), default_name="delays")


def test_a_short_file_is_enough() -> None:
    pipeline = parse(REAL_TIME)
    assert isinstance(pipeline, QueryPipeline)
    assert (pipeline.kind, pipeline.name, pipeline.group) == ("real_time", "delays", "delays")
    assert pipeline.checkpoint == "/jobs/state"
    assert pipeline.dead_letters == "/jobs/state.dead_letters"
    assert pipeline.source.starting_offsets == "earliest"
    assert pipeline.trigger == Trigger()
    assert (pipeline.streams[0].topics, pipeline.streams[0].pattern) == (("flights",), "")
    assert (pipeline.sink.format, pipeline.sink.options) == ("parquet", {"path": "/jobs/out"})


def test_an_offline_pipeline_ends_and_takes_every_column_of_its_stream() -> None:
    text = REAL_TIME.replace("real_time", "offline").replace('sql = "SELECT count(*) FROM flights"', "")
    pipeline = parse(text)
    assert isinstance(pipeline, QueryPipeline)
    assert pipeline.trigger.available_now
    assert pipeline.sql == "SELECT * FROM flights"


def test_results_may_be_in_a_folder_of_the_checkpoint() -> None:
    pipeline = parse(REAL_TIME.replace('path = "out"', 'path = "state/out"'))
    assert isinstance(pipeline, QueryPipeline)
    assert pipeline.sink.options["path"] == "/jobs/state/out"


def test_bad_rows_are_limited_to_a_half_unless_the_file_says_otherwise() -> None:
    given = {"": "50%", 'max_bad_rows = "1.5%"': "1.5%", 'max_bad_rows = "20"': "20"}
    for text, limit in given.items():
        pipeline = parse(f"{text}\n{REAL_TIME}")
        assert isinstance(pipeline, QueryPipeline)
        assert str(pipeline.max_bad_rows) == limit
    for wrong in ("101%", "few", "-1", "1 %"):
        with pytest.raises(ConfigurationError, match="max_bad_rows: expected a number of rows"):
            parse(f'max_bad_rows = "{wrong}"\n{REAL_TIME}')


def test_a_dead_letter_topic_keeps_its_records_unless_the_file_says_otherwise() -> None:
    pipeline = parse(REAL_TIME.replace("[source]", 'dead_letter_topic = "bad"\n[source]'))
    assert isinstance(pipeline, QueryPipeline)
    assert pipeline.dead_letter_configs == {"retention.ms": "-1"}
    keys = 'dead_letter_topic = "bad"\ndead_letter_configs = { "retention.ms" = 5 }\ndead_letter_replication_factor = 2'
    pipeline = parse(REAL_TIME.replace("[source]", f"{keys}\n[source]"))
    assert isinstance(pipeline, QueryPipeline)
    assert (pipeline.dead_letter_configs, pipeline.dead_letter_replication_factor) == ({"retention.ms": "5"}, 2)


def test_dead_letters_are_written_to_the_configured_directory() -> None:
    pipeline = parse(REAL_TIME.replace("[source]", 'dead_letters = "bad"\n[source]'))
    assert isinstance(pipeline, QueryPipeline)
    assert pipeline.dead_letters == "/jobs/bad"


def test_a_mirror_has_topics_and_a_target() -> None:
    pipeline = parse(MIRROR)
    assert isinstance(pipeline, MirrorPipeline)
    assert (pipeline.source.topics, pipeline.source.pattern) == (("flights",), "")
    assert (pipeline.target.topic_prefix, pipeline.target.replication_factor) == ("", None)


def test_values_of_kafkas_keys_become_texts() -> None:
    pipeline = parse(MIRROR.replace("[target]", '[target]\nkafka = {"linger.ms" = 5, "enable.idempotence" = true}'))
    assert isinstance(pipeline, MirrorPipeline)
    assert pipeline.target.kafka == {"linger.ms": "5", "enable.idempotence": "true"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('kind = "real_time"', "", "kind is missing"),
        ('"real_time"', '"realtime"', "kind is one of mirror, offline, real_time, not 'realtime'"),
        ('checkpoint = "state"', "", "checkpoint is missing"),
        ('checkpoint = "state"', 'checkpoint = " "', "checkpoint: the text is empty"),
        ('checkpoint = "state"', "checkpoint = 5", "checkpoint: expected a text in quotes, got 5"),
        ('checkpoint = "state"', 'chekpoint = "state"\ncheckpoint = "c"', "no key chekpoint: did you mean checkpoint?"),
        ('bootstrap_servers = "localhost:9092"', "", "source.bootstrap_servers is missing"),
        ("[streams.flights]", "[trigger]\ninterval = 5\n[streams.flights]", "trigger.interval: expected a text"),
        ("[streams.flights]", '[trigger]\ninterval = "5"\n[streams.flights]', "a duration such as '10 seconds'"),
        (
            "[streams.flights]",
            '[trigger]\ninterval = "5 s"\navailable_now = true\n[streams.flights]',
            "trigger.interval is for trigger.available_now = false",
        ),
        ('topics = ["flights"]', "", "streams.flights.topics or pattern is required"),
        ('topics = ["flights"]', 'topics = ["a b"]', "contains one or more characters other than"),
        ('topics = ["flights"]', 'topics = "flights"', "streams.flights.topics: expected a list, got a text"),
        ('topics = ["flights"]', 'pattern = "a("', "streams.flights.pattern: is not a regular expression: missing )"),
        ('topics = ["flights"]', 'pattern = "[a-z&&b]"', "streams.flights.pattern: '[a-z&&b]' has a class within"),
        ("[streams.flights]", "[streams.x-y]", "streams.x-y: expected a name for a view"),
        ('[streams.flights]\ntopics = ["flights"]', "", "streams is missing: a table [streams.NAME]"),
        (
            'topics = ["flights"]',
            'topics = ["flights"]\nwatermark = "soon"',
            "streams.flights.watermark: expected a duration",
        ),
        ('sql = "SELECT count(*) FROM flights"', "", "sql is missing"),
        ('path = "out"', "", "sink.path is missing"),
        (
            'path = "out"',
            'path = "out"\noutput_mode = "update"',
            "sink.output_mode is append for files and tables, not update",
        ),
        ('path = "out"', 'format = "odradek"', "sink.bootstrap_servers is missing"),
        (
            'path = "out"',
            'path = "./state/"',
            "sink.path is the directory of checkpoint, /jobs/state: give another one",
        ),
        ('path = "out"', 'path = "state.dead_letters"', "sink.path is the directory of dead_letters, /jobs/state.d"),
        (
            'path = "out"',
            'format = "odradek"\nbootstrap_servers = "localhost:9092"\ntopic = "flights"',
            "sink.topic is flights, which streams.flights reads",
        ),
        ('path = "out"', 'path = "out"\npartitioned_by = ["x"]', "did you mean partition_by?"),
        ("topics = [", "topcis = [", "there is no key streams.flights.topcis: did you mean topics?"),
        (
            'servers = "localhost:9092"',
            'servers = "l:1"\nmin_partitions = 0',
            "source.min_partitions: expected a whole number >= 1",
        ),
        (
            'servers = "localhost:9092"',
            'servers = "l:1"\nfail_on_data_loss = 1',
            "expected true or false, got a whole number",
        ),
        ('servers = "localhost:9092"', 'servers = "l:1"\nconsume_mode = "x"', "is one of direct, group, not 'x'"),
        (
            'bootstrap_servers = "localhost:9092"',
            'bootstrap_servers = "l:1"\nconsume_mode = "group"\n[streams.other]\ntopics = ["other"]',
            "source.consume_mode is direct with several streams",
        ),
        ('servers = "localhost:9092"', 'servers = "l:1"\nkafka.isolation.level = "x"', "are its dots in quotes?"),
    ],
)
def test_an_error_is_one_line_that_names_the_key(old: str, new: str, sentence: str) -> None:
    assert old in REAL_TIME
    with pytest.raises(Exception) as caught:  # noqa: PT011 - an invalid topic has an error of its own
        parse(REAL_TIME.replace(old, new))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_member_of_a_group_keeps_no_state_and_goes_on_where_its_group_was() -> None:
    text = REAL_TIME.replace("[streams", 'consume_mode = "group"\n[streams')
    assert (parse(text).source.consume_mode, parse(text).group) == ("group", "delays")
    assert parse(REAL_TIME).source.consume_mode == "direct"
    with pytest.raises(ConfigurationError, match=r"streams\.flights\.watermark is for state, which does not move"):
        parse(text.replace("[sink]", 'watermark = "1 hour"\n[sink]'))
    sink = 'format = "console"\noutput_mode = "complete"'
    with pytest.raises(ConfigurationError, match=r"sink\.output_mode is append with .*, not complete"):
        parse(text.replace('path = "out"', sink))
    since = text.replace("real_time", "offline").replace("[streams", "since = 2024-03-01T00:00:00Z\n[streams")
    with pytest.raises(ConfigurationError, match=r'source\.since is for source\.consume_mode = "direct"'):
        parse(since)
    with pytest.raises(ConfigurationError, match=r"source\.consume_mode is for kind = \"real_time\" or \"offline\""):
        parse(MIRROR.replace("[target]", 'consume_mode = "group"\n[target]'))


def test_a_pattern_that_selects_the_sink_or_the_dead_letters_is_refused() -> None:
    text = REAL_TIME.replace('topics = ["flights"]', 'pattern = "fl.*"')
    sink = 'format = "odradek"\nbootstrap_servers = "localhost:{}"\ntopic = "fluent"'
    with pytest.raises(ConfigurationError, match=r"sink\.topic is fluent, which streams\.flights reads"):
        parse(text.replace('path = "out"', sink.format(9092)))
    assert parse(text.replace('path = "out"', sink.format(9093))).name == "delays"
    with pytest.raises(ConfigurationError, match=r"dead_letter_topic is fly, which the pipeline reads"):
        parse(text.replace("[source]", 'dead_letter_topic = "fly"\n[source]'))


def test_a_guarantee_of_exactly_once_is_passed_to_the_sink_and_reads_what_is_committed() -> None:
    topic = 'format = "odradek"\nbootstrap_servers = "localhost:9093"\ntopic = "sums"'
    made = parse('guarantee = "exactly_once"' + REAL_TIME.replace('path = "out"', topic))
    assert isinstance(made, QueryPipeline)
    assert made.sink.options.items() >= {"guarantee": "exactly_once", "transactionalIdPrefix": "delays-sink"}.items()
    assert made.source.kafka == {"isolation.level": "read_committed"}
    mirror = parse('guarantee = "exactly_once"' + MIRROR)
    assert isinstance(mirror, MirrorPipeline)
    assert mirror.is_exactly_once
    least = parse('guarantee = "at_least_once"' + MIRROR)
    assert isinstance(least, MirrorPipeline)
    assert not least.is_exactly_once
    assert least.source.kafka == {}


@pytest.mark.parametrize(
    ("text", "given", "by", "sentence"),
    [
        (REAL_TIME, 'path = "out"', 'format = "console"', "guarantee is at_least_once with the sink console"),
        (REAL_TIME, "[streams", 'consume_mode = "group"\n[streams', "at_least_once with source.consume_mode"),
        (
            REAL_TIME,
            "[source]",
            'dead_letter_topic = "d"\n[source]',
            'dead_letter_topic is for guarantee = "at_least_once"',
        ),
        (
            REAL_TIME,
            'path = "out"',
            'format = "odradek"\nbootstrap_servers = "h:1"\noptions = { guarantee = "at_least_once" }',
            "guarantee and sink.options.guarantee exclude each other",
        ),
        (MIRROR, "[source]", 'groups = ["a"]\n[source]', 'groups is for guarantee = "at_least_once"'),
        (MIRROR, 'guarantee = "exactly_once"', 'guarantee = "once"', "guarantee is one of at_least_once, exactly_once"),
        (REAL_TIME, "real_time", "offline", 'guarantee is for kind = "real_time" or "mirror"'),
    ],
)
def test_exactly_once_is_refused_with_keys_that_repeat_records(text: str, given: str, by: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        parse(('guarantee = "exactly_once"' + text).replace(given, by))


@pytest.mark.parametrize(
    "servers", ["localhost:9092", "PLAINTEXT://localhost:9092", "localhost:9092,", " localhost:9092"]
)
def test_a_mirror_onto_itself_needs_a_prefix(servers: str) -> None:
    text = MIRROR.replace("localhost:9093", servers)
    with pytest.raises(ConfigurationError, match=r"give target\.topic_prefix"):
        parse(text)
    assert parse(text + 'topic_prefix = "copy-"').name == "delays"


@pytest.mark.parametrize("servers", ["localhost", "", ",", "kafka://localhost:9092"])
def test_an_address_that_is_none_is_refused_by_its_key(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"target\.bootstrap_servers: "):
        parse(MIRROR.replace("localhost:9093", servers))


def test_a_mirror_does_not_split_partitions() -> None:
    with pytest.raises(ConfigurationError, match=r"source\.min_partitions is for kind = "):
        parse(MIRROR.replace("[target]", "min_partitions = 4\n[target]"))


def test_a_file_names_itself_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    with pytest.raises(ConfigurationError, match=r"job\.toml: No such file"):
        load_pipeline(path)
    path.write_text("kind = ")
    with pytest.raises(ConfigurationError, match=r"job\.toml: not TOML"):
        load_pipeline(path)
    path.write_text(REAL_TIME.replace("real_time", "x"))
    with pytest.raises(ConfigurationError, match=r"job\.toml:2: kind is one of"):
        load_pipeline(path)
    path.write_text(REAL_TIME)
    assert load_pipeline(path).name == "job"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_is_valid_and_of_its_kind(kind: str) -> None:
    values: dict[str, Any] = tomllib.loads(EXAMPLES[kind])
    pipeline = parse_pipeline(values, directory=Path("/jobs"), default_name="example")
    assert pipeline.kind == {"table": "real_time"}.get(kind, kind)


def test_values_of_kafka_may_refer_to_secrets_which_no_text_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "geheim")
    for key, table in (("kafka", "source"), ("options", "sink")):
        values = tomllib.loads(REAL_TIME)
        values[table][key] = {"sasl.password": "${env:PASSWORD}"}
        made = parse_pipeline(values, directory=Path("/"), default_name="p")
        assert getattr(getattr(made, table), key)["sasl.password"] == "geheim"
        assert "geheim" not in repr(made)
        values[table][key] = {"sasl.password": "${env:NOT_SET_ANYWHERE}"}
        with pytest.raises(ConfigurationError, match=rf"{table}\.{key}: sasl.password is .*no environment"):
            parse_pipeline(values, directory=Path("/"), default_name="p")
