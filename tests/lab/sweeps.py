"""Sweeps in a directory of the test."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from odradek.lab.sweep import Sweep, load_sweep
from odradek.lab.sweep.results import Results
from odradek.lab.sweep.scenarios import compute_row, encode
from odradek.runtime import SystemClock, SystemDisk


def write_sweep(directory: Path, text: str) -> Path:
    """Write the file of a sweep and return its path."""
    path = directory / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def sweep_of(directory: Path, text: str) -> Sweep:
    """Return the sweep of a text."""
    return load_sweep(write_sweep(directory, text))


def compute_here(directory: Path, text: str) -> tuple[Sweep, Results]:
    """Return a sweep whose results have been computed in this process, without Spark."""
    sweep = sweep_of(directory, text)
    results = Results(SystemDisk(), sweep)
    results.begin()
    for batch in results.missing(sweep.setting_count):
        results.save(batch, encode(sweep, batch.strategy, batch.first, batch.last, SystemClock()))
    results.release()
    return sweep, results


def rows_here(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the rows of a sweep without their times, computed in this process, sorted by scenario."""
    rows = [
        compute_row(sweep, sweep.setting(position), strategy, SystemClock())
        for strategy in sweep.strategies
        for position in range(sweep.setting_count)
    ]
    return _comparable(rows)


def rows_of_table(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a sweep's table without their times, sorted by scenario."""
    rows = pq.read_table(directory / "results").to_pylist()
    for row in rows:
        del row["strategy"]
    return _comparable(rows)


def files(directory: Path) -> dict[str, bytes]:
    """Return the finished files of a sweep's table."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted((directory / "results").rglob("*.parquet"))
        if not path.name.startswith(".")
    }


def _comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [{key: value for key, value in row.items() if key != "assign_ms" and value is not None} for row in rows]
    return sorted(known, key=lambda row: str(row["scenario"]))
