"""Spark's progress reports, as figures and as offsets for a group."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.model import TopicPartition
from odradek.pipelines.attempts import too_many_bad_rows
from odradek.pipelines.config import BadRowLimit
from odradek.pipelines.errors import is_final, sentence_of
from odradek.pipelines.progress import Figures, add_reports, offsets_of


def report(batch: int, rows_in: int, rows_out: int | None, late: tuple[int, ...] = (), *ends: str | None) -> Any:
    observed = {} if rows_out is None else {"odradek": SimpleNamespace(rows=rows_out)}
    return SimpleNamespace(
        batchId=batch,
        numInputRows=rows_in,
        batchDuration=500,
        timestamp=f"1970-01-01T00:00:{batch:02}.250Z",
        durationMs={"addBatch": 400, "triggerExecution": 500},
        observedMetrics=observed,
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=number) for number in late],
        sources=[SimpleNamespace(endOffset=end, latestOffset=None) for end in ends],
    )


def test_a_batch_that_is_reported_twice_counts_once() -> None:
    reports = [report(0, 0, None), report(1, 10, 4, (1, 2)), report(1, 10, 4, (1, 2)), report(2, 5, 0)]
    figures, last = add_reports(Figures(), reports, after_batch=-1)
    assert figures == Figures(
        records_in=15,
        records_out=4,
        records_late=3,
        batches=3,
        lag=0,
        rows_per_second=10,
        batch_seconds=0.5,
        batch_ended_at=2.75,
    )
    assert add_reports(figures, reports, after_batch=last) == (figures, 2)


def test_a_batch_after_an_idle_period_is_counted() -> None:
    idle = report(1, 0, None)
    idle.durationMs = {"latestOffset": 3, "triggerExecution": 3}
    figures, last = add_reports(Figures(), [report(0, 1, 1), idle], after_batch=-1)
    figures, last = add_reports(figures, [report(0, 1, 1), idle, idle, report(1, 250, 250)], after_batch=last)
    assert (figures.records_in, figures.records_out, figures.batches, last) == (251, 251, 2, 1)


def test_lag_is_what_the_last_report_s_ends_of_logs_are_ahead_of_its_batch() -> None:
    last = report(2, 5, 0)
    last.sources = [
        SimpleNamespace(endOffset='{"a": {"0": 5}}', latestOffset='{"a": {"0": 7, "1": 4}}'),
        SimpleNamespace(endOffset='{"b": {"0": 1}}', latestOffset='{"b": {"0": 1}}'),
    ]
    figures, _ = add_reports(Figures(), [report(1, 5, 0), last], after_batch=-1)
    assert figures.lag == 6


def test_the_input_of_each_stream_is_counted() -> None:
    one = report(0, 10, 4)
    one.observedMetrics["odradek.a"] = SimpleNamespace(bad_rows=2, tombstones=1, reason="field n is not INT: x")
    one.observedMetrics["odradek.b"] = SimpleNamespace(bad_rows=1, tombstones=0, reason=None)
    one.observedMetrics["mine"] = SimpleNamespace(rows=7)
    figures, _ = add_reports(Figures(), [one], after_batch=-1)
    assert (figures.records_in, figures.bad_rows, figures.tombstones) == (10, 3, 1)
    assert figures.bad_row_reason == "field n is not INT: x"


@pytest.mark.parametrize(
    ("limit", "bad_rows", "text"),
    [
        (BadRowLimit("1%"), 12, None),
        (BadRowLimit("1%"), 13, "11 of 1,000 records are bad rows, more than max_bad_rows = 1%"),
        (BadRowLimit("12"), 12, None),
        (BadRowLimit("12"), 13, "13 of 5,000 records are bad rows, more than max_bad_rows = 12"),
        (BadRowLimit("100%"), 1_002, None),
    ],
)
def test_a_share_counts_since_the_last_comparison_and_a_number_since_the_start(
    limit: BadRowLimit, bad_rows: int, text: str | None
) -> None:
    before = Figures(records_in=4_000, bad_rows=2)
    assert too_many_bad_rows(limit, before, Figures(records_in=5_000, bad_rows=bad_rows)) == text


def test_observations_of_spark_connect_have_a_schema() -> None:
    one = report(0, 10, None)
    schema = {"fields": [{"name": "bad_rows"}, {"name": "tombstones"}]}
    one.observedMetrics["odradek.a"] = SimpleNamespace(values=[2, 1], schema=schema)
    figures, _ = add_reports(Figures(), [one], after_batch=-1)
    assert (figures.records_out, figures.bad_rows, figures.tombstones) == (0, 2, 1)


def test_offsets_of_all_sources_are_merged_to_the_lowest_per_partition() -> None:
    first = '{"@": "anchor", "a": {"0": 5, "1": 7}}'
    found = offsets_of(report(1, 0, None, (), first, '{"a": {"1": 3}, "b": {"0": 1}}', None, "null"))
    assert found == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 3, TopicPartition("b", 0): 1}


def test_the_sentence_of_a_nested_error_is_the_innermost_odradek_error() -> None:
    text = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "stream_reader.py", line 97, in partitions
odradek.spark.reading.planning.DataLossError: a-0 is gone; set failOnDataLoss=false to read the rest
 SQLSTATE: 38000
=== Streaming Query ==="""
    assert sentence_of(text) == "a-0 is gone; set failOnDataLoss=false to read the rest"
    missing = "org.apache.spark.api.python.PythonException\nModuleNotFoundError: No module named 'odradek.spark'"
    assert "has no package odradek: install Odradek with its extra spark there, or set PYSPARK_PYTHON" in sentence_of(
        missing
    )
    assert is_final(missing)
    assert "have no program /x/python: set PYSPARK_PYTHON" in sentence_of('Cannot run program "/x/python": error=2')
    assert sentence_of("\n[TABLE_NOT_FOUND] x\nmore") == "[TABLE_NOT_FOUND] x"
    assert sentence_of("SparkException: Python worker failed to connect back.").startswith(
        "Spark's Python did not start"
    )
    function = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    function += (
        '  File "jobs.py", line 2, in send\n    raise ValueError("x")\nValueError: no mail server\n\n\tat py4j.P.a()'
    )
    assert sentence_of(function) == "ValueError: no mail server"
    assert sentence_of("") == "Spark gave no reason"


def test_errors_that_every_attempt_repeats_are_final() -> None:
    assert is_final("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")
    assert is_final("[UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE] SQLSTATE: 0A000")
    assert not is_final("Python worker failed to connect back.")
    assert not is_final("odradek.model.errors.UnavailableError: gone\n[STREAM_FAILED] SQLSTATE: XXKST")
