"""Spark's progress reports, as figures and as offsets for a group."""

import socket
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from odradek.cli import main
from odradek.model import ConfigurationError, StorageError, TopicPartition
from odradek.pipelines.attempts import too_many_bad_rows
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.pipelines import BadRowLimit
from odradek.pipelines.errors import is_final, sentence_of
from odradek.pipelines.metrics import served_metrics
from odradek.pipelines.mirror.copying import batch_ranges
from odradek.pipelines.mirror.offset_syncs import FILE, MOST_RANGES, OffsetSyncs
from odradek.pipelines.progress import Figures, add_reports, offsets_of
from odradek.pipelines.status import State, Status
from odradek.runtime import system_runtime


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
    unknown = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: odradek. Make sure the provider name is correct"
    assert "has no package odradek: install Odradek" in sentence_of(unknown)
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


# ---- Metrics ---------------------------------------------------------------------------------------------------------


def scrape(host: str, port: int) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_rows_lag_bad_rows_and_the_time_of_the_batch_are_served_until_the_end() -> None:
    figures = Figures(records_in=9, records_out=7, bad_rows=2, batches=3, lag=4, batch_seconds=0.5, batch_ended_at=99.5)
    statuses: list[Status] = []
    with served_metrics(("127.0.0.1", 0), statuses) as address:
        assert ("odradek_pipeline_records_in_total", "a") not in scrape(*address)
        statuses[:] = [
            Status(name="a", kind="real_time", state=State.RESTARTING, figures=figures, restarts=1),
            Status(name="b", kind="mirror", state=State.RUNNING),
        ]
        found = scrape(*address)
    expected = {
        "records_in_total": 9,
        "records_out_total": 7,
        "records_late_total": 0,
        "bad_rows_total": 2,
        "tombstones_total": 0,
        "batches_total": 3,
        "restarts_total": 1,
        "lag": 4,
        "last_batch_duration_seconds": 0.5,
        "last_batch_timestamp_seconds": 99.5,
    }
    of_a = {
        name.removeprefix("odradek_pipeline_"): value for (name, *labels), value in found.items() if labels == ["a"]
    }
    assert of_a == expected
    assert ("odradek_pipeline_lag", "b") not in found
    states = {labels for labels, value in found.items() if labels[0] == "odradek_pipeline_state" and value}
    assert states == {("odradek_pipeline_state", "a", "restarting"), ("odradek_pipeline_state", "b", "running")}


def test_an_address_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            pytest.raises(
                ConfigurationError, match=f"cannot serve metrics at 127.0.0.1:{port}: Address already in use"
            ),
            served_metrics(("127.0.0.1", port), []),
        ):
            pass


def test_metrics_for_other_machines_need_a_permission(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "run", "--metrics-listen", "0.0.0.0:0", str(file)])
    assert (done.exit_code, "add --allow-anonymous-network" in done.output) == (2, True)


# ---- Offsets of mirrors ----------------------------------------------------------------------------------------------

HERE = TopicPartition("a", 0)


def syncs(*ranges: tuple[int, int, int, int]) -> OffsetSyncs:
    made = OffsetSyncs()
    for start, end, to_start, to_end in ranges:
        made.add(HERE, (start, end), (to_start, to_end))
    return made


def test_offsets_of_a_log_without_gaps_translate_one_to_one():
    made = syncs((5, 10, 0, 5), (10, 30, 5, 25))
    assert [made.translate(HERE, offset) for offset in (4, 5, 9, 10, 29, 30, 99)] == [None, 0, 4, 5, 24, 25, 25]
    assert made.translate(TopicPartition("b", 0), 5) is None


def test_inside_of_a_range_with_gaps_a_group_reads_some_records_again():
    made = syncs((0, 10, 0, 10), (10, 20, 10, 14), (20, 30, 14, 24))
    assert [made.translate(HERE, offset) for offset in (9, 10, 15, 19, 20, 21)] == [9, 10, 10, 10, 14, 15]


def test_a_batch_that_is_written_again_counts_from_its_last_copy():
    made = syncs((0, 10, 0, 10), (10, 20, 10, 20), (10, 20, 25, 35))
    assert [made.translate(HERE, offset) for offset in (5, 10, 15, 20)] == [5, 25, 30, 35]


def test_a_topic_that_was_made_again_begins_anew():
    assert syncs((0, 100, 0, 100), (0, 10, 100, 110)).translate(HERE, 5) == 105


def test_an_empty_batch_adds_nothing():
    assert syncs((0, 0, 0, 0)).translate(HERE, 0) is None


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=30))
def test_no_translation_skips_a_record(batches: list[tuple[int, int]]):
    made, source, target, first_copy = OffsetSyncs(), 0, 0, {}
    for size, kept in batches:
        kept = min(size, kept)
        made.add(HERE, (source, source + size), (target, target + kept))
        # The last `kept` records of the batch are those that the log has.
        first_copy |= {source + size - kept + index: target + index for index in range(kept)}
        source, target = source + size, target + kept
    for committed in range(source + 1):
        translated = made.translate(HERE, committed)
        assert translated is not None
        assert all(copy >= translated for offset, copy in first_copy.items() if offset >= committed)


def test_a_checkpoint_keeps_them_and_forgets_the_oldest(tmp_path: Path):
    disk = system_runtime().disk
    made = syncs(*((2 * n, 2 * n + 2, n, n + 1) for n in range(MOST_RANGES + 3)))
    made.save(disk, str(tmp_path))
    loaded = OffsetSyncs.load(disk, str(tmp_path))
    assert (loaded.translate(HERE, 5), loaded.translate(HERE, 6)) == (None, 3)
    (tmp_path / FILE).write_text("[")
    with pytest.raises(StorageError, match="is damaged: remove it"):
        OffsetSyncs.load(disk, str(tmp_path))


def test_the_ranges_of_a_batch_are_in_spark_s_checkpoint(tmp_path: Path):
    (tmp_path / "offsets").mkdir()
    first = '{"@": {"start": {"a": {"0": 3}}}, "a": {"0": 5}}'
    for number, offset in enumerate((first, '{"a": {"0": 9, "1": 4}}')):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}")
    disk = system_runtime().disk
    assert batch_ranges(disk, str(tmp_path), 0) == {HERE: (3, 5)}
    assert batch_ranges(disk, str(tmp_path), 1) == {HERE: (5, 9), TopicPartition("a", 1): (0, 4)}
    with pytest.raises(StorageError, match="offsets/2 cannot be read"):
        batch_ranges(disk, str(tmp_path), 2)
