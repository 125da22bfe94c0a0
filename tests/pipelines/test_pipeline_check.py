"""`odradek pipeline check`: Spark analyses a file without running it, and the error names the line (M11)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.config.toml import key_lines, line_in_value
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [pytest.mark.timeout(300)]

JOB = '''\
kind = "real_time"
checkpoint = "state"
sql = """

SELECT window(timestamp, '1 hour').start AS hour,
       count(price) AS prices
FROM quotes GROUP BY window(timestamp, '1 hour')
"""
[source]
bootstrap_servers = "127.0.0.1:1"
kafka = { "isolation.level" = "read_committed" }
[trigger]
interval = "5 seconds"
[streams.quotes]
topics = ["quotes"]
value = "symbol STRING, price DOUBLE"
watermark = "1 hour"
[sink]
path = "out"
partition_by = ["hour"]
'''


def test_lines_of_keys_are_found_beside_texts_that_look_like_keys():
    text = 'a = 1\nsql = """\n[no]\nb = 2"""\n[x."y.z"]\nb = { c = 1 }\n# d = 2\n[[e]]\n'
    assert key_lines(text) == {"a": 1, "sql": 2, "x.y.z": 5, "x.y.z.b": 6, "e": 8}
    assert line_in_value('sql = """\n\n\nSELECT 1\n"""', 1, 1) == 4
    assert line_in_value('sql = "SELECT 1"', 1, 1) == 1


@pytest.fixture
def check(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, str]]:
    """Checks a text in the session of these tests, which it must leave to them."""
    monkeypatch.setattr("odradek.spark.session.stop_session", lambda session: None)

    def run(text: str, *options: str) -> tuple[int, str]:
        file = tmp_path / "job.toml"
        file.write_text(text)
        done = CliRunner().invoke(main, ["pipeline", "check", *options, str(file)])
        return done.exit_code, done.output.replace(str(tmp_path), "DIR")

    return run


@pytest.mark.needs("java")
def test_a_valid_file_shows_its_columns_also_where_no_broker_answers(check: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("odradek.pipelines.sinks._TOPICS_MS", 200)
    code, text = check(JOB)
    assert code == 0
    assert "odradek: DIR/job.toml: its topics are not checked: no broker answers" in text
    assert text.endswith("DIR/job.toml: job is a valid real_time pipeline with columns hour timestamp, prices bigint\n")


@pytest.mark.needs("java")
def test_a_topic_that_does_not_exist_is_named(check: Any, topic: str, source: ServedBroker):
    job = JOB.replace("127.0.0.1:1", source.bootstrap_servers)
    code, text = check(job.replace('topics = ["quotes"]', f'topics = ["{topic}", "nonesuch"]'))
    assert code == 1
    assert text.startswith("odradek: DIR/job.toml:15: streams.quotes.topics: there is no topic 'nonesuch': create it")
    code, text = check(job.replace('topics = ["quotes"]', f'topics = ["{topic}"]'))
    assert (code, text.count("\n")) == (0, 1)


@pytest.mark.needs("java")
def test_a_directory_that_cannot_be_written_is_named(check: Any, tmp_path: Path):
    (tmp_path / "file").touch()
    for old, new, place in (
        ('"out"', '"file/out"', "19: sink.path DIR/file/out"),
        ('"state"', '"file"', "2: checkpoint DIR/file"),
    ):
        code, text = check(JOB.replace(old, new))
        expected = f"odradek: DIR/job.toml:{place} cannot be written: DIR/file is not a directory\n"
        assert (code, text) == (1, expected)


@pytest.mark.needs("java")
@pytest.mark.parametrize(
    ("condition", "valid"), [("a.price < b.price", False), ("a.price < b.price AND a.symbol = b.symbol", True)]
)
def test_a_join_of_streams_needs_an_equality(
    check: Any, monkeypatch: pytest.MonkeyPatch, condition: str, *, valid: bool
):
    monkeypatch.setattr("odradek.pipelines.sinks._TOPICS_MS", 200)
    before, _, rest = JOB.partition('sql = """')
    after = rest.partition('"""')[2].replace('partition_by = ["hour"]\n', "")
    code, text = check(f'{before}sql = "SELECT a.price FROM quotes a, quotes b WHERE {condition}"{after}')
    assert (code == 0, "sql: a join of two streams needs an equality of their columns" in text) == (valid, not valid)


@pytest.mark.needs("java")
@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("count(price)", "count(prize)", 6, "`prize` cannot be resolved"),
        ("AS prices", "AS Hour", 3, "two columns are named hour, which no reader reads"),
        ("FROM quotes", "FORM quotes", 7, "PARSE_SYNTAX_ERROR"),
        ("FROM quotes", "FROM kwotes", 7, "`kwotes` cannot be found"),
        ('watermark = "1 hour"\n', "", 3, "without watermark"),
        ('watermark = "1 hour"', 'watermark = "1 hoor"', 17, "hoor"),
        ('"1 hour"\n[sink]', '"1 hour"\nevent_time = "symbol"\n[sink]', 17, "symbol"),
        ("price DOUBLE", "price DUBLE", 16, "DUBLE"),
        ("price DOUBLE", "price STRUCT<amount: DOUBLE", 16, "or near '<'"),
        ('topics = ["quotes"]', 'pattern = "quotes("', 15, "streams.quotes.pattern: is not a regular expression"),
        ('"5 seconds"', '"5 sekonds"', 13, "sekonds"),
        ("read_committed", "read_commited", 11, "isolation.level"),
        ("isolation.level", "isolation.levle", 11, "isolation.level"),
        ('["hour"]', '["day"]', 20, "names no column of the query: day; there are hour, prices"),
        (
            'path = "out"\npartition_by = ["hour"]',
            'format = "odradek"\nbootstrap_servers = "b:1"\ntopic = "t"',
            3,
            "value",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(check: Any, old: str, new: str, line: int, sentence: str):
    assert old in JOB
    code, text = check(JOB.replace(old, new))
    assert code == 2
    assert text.startswith(f"odradek: DIR/job.toml:{line}: "), text
    assert sentence in text
    assert text.count("\n") == 1
    assert "Traceback" not in text


@pytest.mark.needs("java")
def test_a_column_that_csv_cannot_hold_is_refused(check: Any):
    job = JOB.replace(".start AS hour", " AS hour").replace('path = "out"', 'path = "out"\nformat = "csv"')
    code, text = check(job)
    assert (code, text.startswith("odradek: DIR/job.toml:20: sink.format: csv cannot hold column hour")) == (2, True), (
        text
    )
    assert "to_json(hour)" in text


@pytest.mark.needs("java")
def test_the_traceback_is_behind_debug(check: Any):
    code, text = check(JOB.replace("count(price)", "count(prize)"), "--debug")
    assert code == 2
    assert "Traceback" in text
    assert "AnalysisException" in text


def test_a_mistake_in_the_keys_is_found_without_spark(check: Any):
    assert check(JOB.replace("path =", "paht ="), "--no-spark") == (
        2,
        "odradek: DIR/job.toml:19: there is no key sink.paht: did you mean path?\n",
    )
