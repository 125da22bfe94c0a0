"""Errors of Spark as a sentence about a key of the pipeline's file, and whether they are final."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.config.toml import TomlKeyError
from odradek.pipelines.attempts import AttemptFailedError
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline
from odradek.pipelines.errors import details_of, failure_of, is_final, sentence_of

JOB = """
kind = "real_time"
checkpoint = "state"
sql = "SELECT 1"
[source]
bootstrap_servers = "a:1"
[streams.orders]
topics = ["orders"]
[streams.more]
topics = ["a", "b"]
[sink]
format = "foreach_batch"
function = "jobs:send"
"""


@pytest.fixture
def job() -> AnyPipeline:
    return parse_pipeline(tomllib.loads(JOB), directory=Path("/jobs"), default_name="job")


PY4J = """An error occurred while calling o52.start.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 12 more
"""


def test_an_error_of_the_jvm_keeps_its_cause() -> None:
    assert sentence_of(PY4J) == (
        "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out. (IOException: No space left on device)"
    )
    assert sentence_of("An error occurred while calling o1.a.\n: java.lang.NullPointerException\n\tat x.Y") == (
        "NullPointerException"
    )
    assert (
        sentence_of("An error occurred while calling o1.a.\n: org.apache.spark.SparkException: gone\n\tat x") == "gone"
    )
    assert not is_final(PY4J)


def test_a_cause_in_the_sentence_is_not_repeated() -> None:
    text = "[CAST] 'a' is no INT.\n\nx.Outer: out\nCaused by: org.apache.spark.Bad: [CAST] 'a' is no INT."
    assert sentence_of(text) == "[CAST] 'a' is no INT."


def test_a_query_that_fails_has_the_stack_trace_of_its_cause() -> None:
    cause = SimpleNamespace(_stackTrace="org.apache.spark.sql.AnalysisException: Stream-stream join\n\tat x")
    error = Exception("Stream-stream join without equality")
    error._cause = cause  # type: ignore[attr-defined]
    assert is_final(error)
    assert sentence_of(details_of(error)) == "Stream-stream join without equality"


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("[TABLE_OR_VIEW_NOT_FOUND] The table. SQLSTATE: 42P01", True),
        ("[USER_RAISED_EXCEPTION] mine SQLSTATE: P0001", True),
        ("x\norg.apache.spark.sql.catalyst.ExtendedAnalysisException: y", True),
        ("x\nCaused by: org.apache.hadoop.security.AccessControlException: Permission denied", True),
        ("ValueError: the record says AnalysisException: no", False),
        ("[STREAM_FAILED] SQLSTATE: XXKST", False),
    ],
)
def test_an_error_is_final_by_its_class_or_state(text: str, final: bool) -> None:
    assert is_final(text) is final


def test_a_missing_permission_and_the_end_of_the_jvm_are_final(job: AnyPipeline) -> None:
    assert is_final(PermissionError(13, "Permission denied"))
    gone = AttemptFailedError.of(ConnectionRefusedError(111, "Connection refused"), job)
    assert (gone.is_final, str(gone).partition(":")[0]) == (True, "Spark's JVM has ended")
    assert not is_final(OSError(28, "No space left on device"))


def test_a_sentence_has_a_limit() -> None:
    assert sentence_of("x" * 20_000) == "x" * 999 + "…"


OURS = "Traceback (most recent call last):\n  File 'a'\nodradek."


@pytest.mark.parametrize(
    ("text", "key", "line", "sentence"),
    [
        ("[CAST] no INT.\n== SQL (line 3, position 8) ==\nCAST(a AS INT)", "sql", 3, "sql: [CAST] no INT."),
        (
            f"{OURS}spark.reading.planning.DataLossError: a-0 is gone; set failOnDataLoss=false to read the rest",
            "source.fail_on_data_loss",
            None,
            "source.fail_on_data_loss: a-0 is gone; set source.fail_on_data_loss = false to read the rest",
        ),
        (
            f"{OURS}model.errors.ConfigurationError: there is no topic 'b': create it first",
            "streams.more.topics",
            None,
            "streams.more.topics: there is no topic 'b': create it first",
        ),
        (f"{OURS}spark.BadRowError: no JSON", "on_bad_row", None, "on_bad_row: no JSON"),
        (
            "Traceback (most recent call last):\n  File 'jobs.py'\nValueError: no mail server",
            "sink.function",
            None,
            "sink.function: ValueError: no mail server",
        ),
    ],
)
def test_an_error_at_run_time_names_the_key_and_line(
    job: AnyPipeline, text: str, key: str, line: int | None, sentence: str
) -> None:
    failure = failure_of(text, job)
    assert isinstance(failure, TomlKeyError)
    assert (failure.key, failure.line, str(failure)) == (key, line, sentence)


def test_other_errors_name_no_key(job: AnyPipeline) -> None:
    mirror = parse_pipeline(tomllib.loads(EXAMPLES["mirror"]), directory=Path("/jobs"), default_name="job")
    for pipeline in (job, mirror):
        failure = failure_of(PY4J, pipeline)
        assert not isinstance(failure, TomlKeyError)
        assert "No space left" in str(failure)


@pytest.mark.parametrize(
    "before", ["", 'Traceback (most recent call last):\n  File "x.py", line 1, in initialOffset\n']
)
def test_odradek_s_error_is_found_with_and_without_its_traceback(job: AnyPipeline, before: str) -> None:
    details = (
        "[STREAM_FAILED] Query terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when "
        f"Python streaming data source perform initialOffset: {before}odradek.model.errors.ConfigurationError: "
        "there is no topic 'a': create it first\n SQLSTATE: 38000"
    )
    failure = failure_of(details, job)
    assert str(failure) == "streams.more.topics: there is no topic 'a': create it first"
    assert is_final(details)
