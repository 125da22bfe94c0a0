"""`odradek lab sweep`: compute up to millions of combinations of groups, strategies and failures on Spark."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli.checks import COUNT, key_and_value
from odradek.cli.common import Progress, print_json, print_table, progress, table_options
from odradek.cli.tables import Figure
from odradek.lab.sweep.parsing import load_sweep
from odradek.lab.sweep.results import Batch, Results
from odradek.lab.sweep.settings import Sweep
from odradek.model import OdradekError, packages_of
from odradek.runtime import SystemDisk

_MEASURES: Final = {
    "moved": ("MOVED%", 1),
    "stopped": ("STOPPED%", 1),
    "idle": ("IDLE%", 1),
    "spread": ("SPREAD", 2),
    "local": ("LOCAL%", 1),
    "assign": ("ASSIGN-MS", 3),
}
"""The heading and the decimals of each measure."""
_LINES: Final = 20
"""Number of progress lines if stderr is not a terminal."""


@click.command()
@click.argument("file", metavar="FILE.toml", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master.")
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
@click.option("--limit", metavar="N", type=COUNT, help="An even sample of N scenarios, or a few less.")
@click.option(
    "--by", "by", multiple=True, metavar="AXIS", help="Lines of the table; may be repeated.  [default: strategy]"
)
@click.option("--dry-run", is_flag=True, help="Say how many scenarios there are, and compute nothing.")
@table_options
def sweep(
    *,
    file: Path,
    master: str,
    settings: tuple[str, ...],
    limit: int | None,
    by: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compute every combination of groups, strategies and failures that a file describes.

    The results are a Parquet table and heat maps in the file's directory `out`. A sweep that was stopped or killed
    continues where it stopped: run the same command again. The table shows means over all scenarios; SPREAD is the
    difference between the members with the most and the fewest partitions.
    """
    described = load_sweep(file)
    by = tuple(dict.fromkeys(by)) or ("strategy",)
    for axis in by:
        if axis not in (known := ("strategy", *described.axes)):
            raise click.BadParameter(f"{axis!r} is not an axis of {file}: use {', '.join(known)}", param_hint="--by")
    options = dict(map(key_and_value, settings))
    count = _settings_within(described, limit)
    results = Results(SystemDisk(), described)
    if dry_run:
        results.check_definition()
        _print_plan(described, count, results.missing(count), as_json=as_json)
        return
    results.begin()
    try:
        if missing := results.missing(count):
            _compute(described, missing, results, master, options, count)
        _finish(described, results, by, as_json=as_json)
    finally:
        results.release()


def _settings_within(sweep: Sweep, limit: int | None) -> int:
    if limit is None:
        return sweep.setting_count
    if limit < len(sweep.strategies):
        raise click.BadParameter(
            f"{limit} is less than the {len(sweep.strategies)} strategies, which all get the same scenarios",
            param_hint="--limit",
        )
    return min(sweep.setting_count, limit // len(sweep.strategies))


def _print_plan(sweep: Sweep, count: int, missing: Sequence[Batch], *, as_json: bool) -> None:
    wanted = count * len(sweep.strategies)
    left = sum(batch.last - batch.first for batch in missing)
    if as_json:
        axes = {axis: len(values) for axis, values in sweep.axes.items()} | {"strategy": len(sweep.strategies)}
        print_json({"scenarios": wanted, "finished": wanted - left, "batches": len(missing), "values": axes})
        return
    factors = [
        f"{len(values):,} of {axis}"
        for axis, values in {**sweep.axes, "strategy": sweep.strategies}.items()
        if len(values) > 1
    ]
    product = f" ({' × '.join(factors)})" if factors else ""
    sample = f", of which {wanted:,} are wanted" if count < sweep.setting_count else ""
    click.echo(f"{sweep.scenario_count:,} scenarios{product}{sample}")
    click.echo(f"{wanted - left:,} are finished, {left:,} are left, in {len(missing):,} batches")
    click.echo(f"results: {sweep.directory}")


def _compute(
    sweep: Sweep, missing: Sequence[Batch], results: Results, master: str, options: dict[str, str], count: int
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with packages_of("spark", "sweeps"):
        from odradek.lab.sweep.spark_jobs import compute_batches
        from odradek.spark.jobs import jobs_session
    wanted = count * len(sweep.strategies)
    left = sum(batch.last - batch.first for batch in missing)
    try:
        with (
            jobs_session("odradek lab sweep", master, options, results.log) as spark,
            _progress(wanted, wanted - left) as advance,
        ):
            compute_batches(spark, sweep, missing, results, on_done=advance)
    except (KeyboardInterrupt, OdradekError):
        kept = wanted - sum(batch.last - batch.first for batch in results.missing(count))
        click.echo(
            f"{kept:,} of {wanted:,} scenarios are finished and kept in {sweep.directory}: the same command continues",
            err=True,
        )
        raise


@contextmanager
def _progress(total: int, finished: int) -> Iterator[Progress]:
    """Yield a counter, shown as a bar on a terminal, and elsewhere as a line for each twentieth of the work."""
    if sys.stderr.isatty():
        with progress("sweep", total, unit="scenarios") as advance:
            advance(finished)
            yield advance
        return
    done = finished
    if finished:
        click.echo(f"{finished:,} of {total:,} scenarios were finished before", err=True)

    def add(amount: int) -> None:
        nonlocal done
        before, done = done, done + amount
        if done * _LINES // total > before * _LINES // total:
            click.echo(f"{done:,} of {total:,} scenarios, {100 * done // total} %", err=True)

    yield add


def _finish(sweep: Sweep, results: Results, by: Sequence[str], *, as_json: bool) -> None:
    from odradek.lab.sweep.heat_maps import draw
    from odradek.lab.sweep.summary import means

    rows = means(results.table, sweep, by)
    if as_json:
        for row in rows:
            print_json(row)
    else:
        headings = tuple(axis.upper() for axis in by)
        columns = (*headings, "SCENARIOS", "REFUSED", *(heading for heading, _ in _MEASURES.values()))
        print_table(columns, [_cells(row, by) for row in rows])
    names = results.save_heat_maps(draw(sweep, results.table))
    click.echo(f"heat maps: {results.heat_maps} ({', '.join(names)})", err=True)
    click.echo(f"table: {results.table}", err=True)


def _cells(row: dict[str, Any], by: Sequence[str]) -> tuple[object, ...]:
    figures = (
        None if (value := row[name]) is None else Figure(f"{value:,.{decimals}f}")
        for name, (_, decimals) in _MEASURES.items()
    )
    return (*(row[axis] for axis in by), row["scenarios"], row["refused"], *figures)
