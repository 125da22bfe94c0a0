"""`odradek sim --master` on the session of the other Spark tests."""

import logging
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from odradek.cli.sim import command
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.spark import jobs

pytestmark = pytest.mark.needs("java")


def test_executors_play_the_missing_seeds_with_the_results_that_one_process_has(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobs, "stop_session", lambda session: None)  # other tests need it
    options = ["--workload", "records", "--master", "local[2]", "--output", str(tmp_path)]
    try:
        for seeds, printed in (("1..1", "seed 1: no finding"), ("0..1", "1 seed and 1 before, 0 failed")):
            result = CliRunner().invoke(command, ["--seeds", seeds, *options])
            assert result.exit_code == 0, result.output
            assert printed in result.stdout
        expected = [run_seed(SeedPlan(seed=seed, workloads=("records",))).digest for seed in (0, 1)]
    finally:
        logging.disable(logging.NOTSET)
    table = pq.read_table(tmp_path / "seeds").sort_by("seed")
    assert table["digest"].to_pylist() == expected


def test_an_error_on_an_executor_is_one_sentence_also_if_the_jvm_ends(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(item: int) -> bytes:
        raise ValueError(f"item {item} is odd")

    def cancel(group: str) -> None:
        raise ConnectionRefusedError(group)

    monkeypatch.setattr(spark.sparkContext, "cancelJobGroup", cancel)
    with pytest.raises(jobs.UnavailableError, match=r"^Spark has failed: ValueError: item 1 is odd$"):
        list(jobs.compute_items(spark, "odradek tests", [1], fail))


def test_ctrl_c_is_deferred_until_the_next_item_is_wanted(spark: Any) -> None:
    found = jobs.compute_items(spark, "odradek tests", range(100), lambda item: bytes([item]))
    item, data = next(found)
    signal.raise_signal(signal.SIGINT)
    assert data == bytes([item])
    with pytest.raises(KeyboardInterrupt):
        list(found)
    assert list(jobs.compute_items(spark, "odradek tests", [7], lambda item: bytes([item]))) == [(7, b"\x07")]
