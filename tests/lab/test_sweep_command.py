"""`odradek lab sweep` on Spark: killed, interrupted and resumed, exactly; the plan, the table, the pictures."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from lab_commands import lab
from sweeps import files, rows_here, rows_of_table, sweep_of, write_sweep

from odradek.cli.lab.sweep import _progress
from odradek.testing.conditions import eventually

TEXT = """
strategy = ["range", "cooperative-sticky"]
members = [2, 5]
partitions = 20
racks = [0, 3]
topics = 3
seed = { from = 0, to = 7 }
batch = 16
"""


@contextmanager
def running(path: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "odradek", "lab", "sweep", str(path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.needs("java")
@pytest.mark.timeout(1200)  # Spark starts three times
@pytest.mark.usefixtures("short_lived_java")
def test_a_sweep_that_is_killed_and_interrupted_computes_every_scenario_exactly_once(tmp_path: Path) -> None:
    path, directory = write_sweep(tmp_path, TEXT), tmp_path / "sweep"
    sweep = sweep_of(tmp_path, TEXT)
    assert sweep.scenario_count == 2 * 2 * 2 * 6 * 8
    with running(path, "--master", "local[1]") as process:
        eventually(lambda: len(files(directory)) >= 2, within_s=240)
        os.kill(process.pid, signal.SIGKILL)
    killed = files(directory)
    assert 2 <= len(killed) < sweep.scenario_count // sweep.batch
    with running(path, "--master", "local[1]") as process:
        eventually(lambda: len(files(directory)) >= len(killed) + 2, within_s=240)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    interrupted = files(directory)
    assert len(interrupted) < sweep.scenario_count // sweep.batch
    kept = len(rows_of_table(directory))
    assert f"{kept:,} of 384 scenarios are finished and kept in {directory}: the same command continues" in errors
    assert "Traceback" not in errors
    with running(path, "--master", "local[2]", "--json", "--by", "strategy", "--by", "failure") as process:
        output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert f"{kept:,} of 384 scenarios were finished before" in errors
    assert "384 of 384 scenarios, 100 %" in errors
    finished = files(directory)
    # Files have the times of the first computation: equal bytes were not computed again.
    assert {name: finished[name] for name in interrupted} == interrupted
    assert {name: interrupted[name] for name in killed} == killed
    assert rows_of_table(directory) == rows_here(sweep)
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["strategy"], row["failure"], row["scenarios"]) for row in rows] == [
        (strategy, failure, 32) for strategy in sweep.strategies for failure in sweep.axes["failure"]
    ]
    # All is finished: the summary needs no Spark.
    assert lab("sweep", str(path)).startswith("STRATEGY ")


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    path = write_sweep(tmp_path, TEXT)
    assert lab("sweep", str(path), "--dry-run") == (
        "384 scenarios (2 of members × 2 of racks × 6 of failure × 8 of seed × "
        f"2 of strategy)\n0 are finished, 384 are left, in 24 batches\nresults: {tmp_path / 'sweep'}\n"
    )
    assert "of which 100 are wanted\n0 are finished, 100 are left" in lab(
        "sweep", str(path), "--dry-run", "--limit", "101"
    )
    assert json.loads(lab("sweep", str(path), "--dry-run", "--json"))["scenarios"] == 384
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--limit", "1"), "1 is less than the 2 strategies"),
        (("--by", "member"), "'member' is not an axis of"),
        (("--conf", "spark.executor.memory"), "write KEY=VALUE"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(tmp_path: Path, options: tuple[str, ...], error: str) -> None:
    assert error in " ".join(lab("sweep", str(write_sweep(tmp_path, TEXT)), *options, code=2).split())


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "none.toml" in lab("sweep", str(tmp_path / "none.toml"), code=2)


def _read_all(terminal: int) -> str:
    """Return everything that was written to a terminal whose other end is closed: one read returns 4 KB at most."""
    shown = b""
    with suppress(OSError):  # EIO at the end
        while part := os.read(terminal, 65_536):
            shown += part
    return shown.decode()


def test_a_terminal_gets_a_bar_with_what_was_finished_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr, monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "stderr", stderr)
        with _progress(1_000, 250) as advance:
            advance(500)
    shown = _read_all(ours)
    os.close(ours)
    assert "750 of 1,000 scenarios" in shown
    assert "━" in shown
