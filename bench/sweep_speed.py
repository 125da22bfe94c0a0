"""`odradek bench sweep`: scenarios per second of `odradek lab sweep` on Spark, beside plain Python."""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import click

from bench.measure import Aim, Row, cpu_seconds, print_rows, rounds
from bench.progress import progress
from odradek.lab.sweep import Sweep, load_sweep
from odradek.lab.sweep.results import Results
from odradek.lab.sweep.scenarios import encode
from odradek.runtime import SystemClock, SystemDisk

PLAIN: Final = "plain Python"
_UNITS: Final = ("scenarios/s", "scenarios/CPU s")
_SIZES: Final = ((10, 100), (100, 1_000))
"""Members and partitions."""
_TEXT: Final = """
strategy = ["range", "sticky", "cooperative-sticky", "uniform"]
members = {members}
partitions = {partitions}
topics = 5
racks = 3
seed = {{ from = 0, to = {last} }}
"""


Compute = Callable[[Sweep, Results], None]


@click.command(name="sweep")
@click.option("--seeds", default=100, show_default=True, help="Draws of each group: 24 scenarios each.")
@click.option("--cores", default=(1, 2), multiple=True, show_default=True, help="Of Spark's local[N]; may be repeated.")
@click.option("--rounds", "count", default=3, show_default=True, help="Times each side runs: the figures are medians.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def sweep(*, seeds: int, cores: tuple[int, ...], count: int, as_json: bool) -> None:
    """Compute and save the scenarios of a sweep: how many in a second, and in a CPU second, once Spark runs.

    CPU is that of all processes: this one, Spark's JVM and its Python workers.
    """
    sides = {PLAIN: _in_plain_python} | {f"local[{number}]": partial(_on_spark, number) for number in cores}
    with tempfile.TemporaryDirectory() as folder, progress() as say:
        texts = {
            f"{members:,} members, {partitions:,} partitions": _TEXT.format(
                members=members, partitions=partitions, last=max(seeds * 10 // members, 1) - 1
            )
            for members, partitions in _SIZES
        }
        figures = rounds(count, {name: partial(run, texts, Path(folder)) for name, run in sides.items()}, say=say)
    spark = [name for name in sides if name != PLAIN]
    rows = [
        Row(
            what=f"{what}, beside {peer}",
            unit=unit,
            figures={side: figures[side][f"{what} {unit}"] for side in sides},
            of=of,
            to=peer,
            aim=aim,
        )
        for what, unit, (of, peer, aim) in product(texts, _UNITS, _pairs(spark))
    ]
    starts = {side: figures[side]["start"] for side in spark}
    rows.append(Row(what="start of Spark and its first job", unit="s", figures=starts, of=spark[0], to=None))
    print_rows("odradek lab sweep", rows, as_json=as_json)


def _pairs(spark: list[str]) -> list[tuple[str, str, Aim | None]]:
    """Return (side, peer, aim) of each ratio: the first Spark beside plain Python, others beside the first."""
    return [(spark[0], PLAIN, Aim(0.8)), *((more, spark[0], None) for more in spark[1:])]


def _in_plain_python(texts: dict[str, str], folder: Path) -> dict[str, float]:
    clock = SystemClock()

    def compute(sweep: Sweep, results: Results) -> None:
        for batch in results.missing(sweep.setting_count):
            results.save(batch, encode(sweep, batch.strategy, batch.first, batch.last, clock))

    return _figures(texts, folder, compute)


def _on_spark(cores: int, texts: dict[str, str], folder: Path) -> dict[str, float]:
    from odradek.lab.sweep.spark_jobs import compute_batches
    from odradek.spark.jobs import jobs_session

    def compute(spark: Any, sweep: Sweep, results: Results) -> None:
        missing = results.missing(sweep.setting_count)
        compute_batches(spark, sweep, missing, results, on_done=lambda amount: None)

    began = time.monotonic()
    with jobs_session("odradek lab sweep", f"local[{cores}]", {}, folder / "spark.log") as spark:
        # The Python workers import Odradek.
        _per_second(_TEXT.format(members=2, partitions=2 * 5, last=cores - 1), folder, partial(compute, spark))
        started = {"start": time.monotonic() - began}
        return started | _figures(texts, folder, partial(compute, spark))


def _figures(texts: dict[str, str], folder: Path, compute: Compute) -> dict[str, float]:
    return {
        f"{what} {unit}": figure
        for what, text in texts.items()
        for unit, figure in zip(_UNITS, _per_second(text, folder, compute), strict=True)
    }


def _per_second(text: str, folder: Path, compute: Compute) -> tuple[float, float]:
    """Compute a sweep in a directory of its own; return scenarios per second and per CPU second."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "sweep.toml"
        path.write_text(text)
        sweep = load_sweep(path)
        results = Results(SystemDisk(), sweep)
        results.begin()
        try:
            began, cpu_s = time.monotonic(), _cpu_seconds_of_all()
            compute(sweep, results)
            took_s, used_s = time.monotonic() - began, _cpu_seconds_of_all() - cpu_s
        finally:
            results.release()
        return sweep.scenario_count / took_s, sweep.scenario_count / used_s


def _cpu_seconds_of_all() -> float:
    """Return the CPU seconds of this process and its running descendants."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    wanted = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    total_s = 0.0
    for pid in wanted:
        with suppress(OSError):
            total_s += cpu_seconds(pid)
    return total_s
