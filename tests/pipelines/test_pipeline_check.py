"""`odradek pipeline check`: Spark analyses a file without running it, and the error names the line (M11)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.pipelines.config.lines import key_lines, line_in_value

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
def test_a_valid_file_shows_its_columns_and_no_broker_is_contacted(check: Any):
    assert check(JOB) == (
        0,
        "DIR/job.toml: job is a valid real_time pipeline with columns hour timestamp, prices bigint\n",
    )


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
        ('topics = ["quotes"]', 'pattern = "quotes("', 15, "streams.quotes.pattern is not a regular expression"),
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
    assert code == 1
    assert text.startswith(f"odradek: DIR/job.toml:{line}: "), text
    assert sentence in text
    assert text.count("\n") == 1
    assert "Traceback" not in text


@pytest.mark.needs("java")
def test_a_column_that_csv_cannot_hold_is_refused(check: Any):
    job = JOB.replace(".start AS hour", " AS hour").replace('path = "out"', 'path = "out"\nformat = "csv"')
    code, text = check(job)
    assert (code, text.startswith("odradek: DIR/job.toml:20: sink.format: csv cannot hold column hour")) == (1, True), (
        text
    )
    assert "to_json(hour)" in text


@pytest.mark.needs("java")
def test_the_traceback_is_behind_debug(check: Any):
    code, text = check(JOB.replace("count(price)", "count(prize)"), "--debug")
    assert code == 1
    assert "Traceback" in text
    assert "AnalysisException" in text


def test_a_mistake_in_the_keys_is_found_without_spark(check: Any):
    assert check(JOB.replace("path =", "paht ="), "--no-spark") == (
        1,
        "odradek: DIR/job.toml:19: there is no key sink.paht: did you mean path?\n",
    )
