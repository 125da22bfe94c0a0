"""`odradek sim`: play whole clusters in virtual time, with faults that a seed draws, and check every promise."""

import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec.structs import replace

from odradek.cli.checks import key_and_value
from odradek.cli.common import json_option, print_json
from odradek.cli.sim.failures import print_failure, print_faults, write_failure
from odradek.cli.sim.mistakes import MISTAKES, SEEDS, play_mistakes
from odradek.cli.sim.seeds import Played, Totals, plans_of, play_on_spark, play_seeds, silence
from odradek.model import packages_of
from odradek.runtime import Clock, SystemClock
from odradek.simulation.coverage import unreached
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed
from odradek.simulation.setup import draw_setup
from odradek.simulation.shrinking import shrunk
from odradek.simulation.workloads.catalogue import WORKLOADS, draw_workloads

if TYPE_CHECKING:
    from odradek.cli.sim.table import SeedTable

_PROGRESS_S: Final = 10.0
_MOST_SHRUNK: Final = 3
"""The number of failed seeds for which the fewest faults are searched; a search takes up to 24 runs."""


class _Names(click.ParamType[tuple[str, ...]]):
    """Names, separated by commas, of a known set."""

    name = "NAME[,…]"

    def __init__(self, known: list[str]) -> None:
        self._known = known

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(str(value).split(","))
        if unknown := [name for name in names if name not in self._known]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(self._known)}", param, ctx)
        return names


def _range(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    if (match := re.fullmatch(r"(\d+)\.\.(\d+)", value)) is None or int(match[1]) > int(match[2]):
        raise click.BadParameter(f"{value!r} is not a range of seeds such as 0..199", ctx, param)
    return int(match[1]), int(match[2])


def _pinned(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    pinned = dict(map(key_and_value, value))
    try:
        draw_setup(0, pinned)
    except msgspec.ValidationError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return pinned


@click.command()
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Play one seed; with --minutes, start with it.")
@click.option("--seeds", callback=_range, metavar="A..B", help="Play the seeds from A to B.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Start no more seeds after this time.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of processes.")
@click.option("--master", metavar="URL", help="Play the seeds on Spark: spark://HOST:PORT, local[2], …")
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
@click.option(
    "--workload", "workloads", type=_Names(sorted(WORKLOADS)), default=(), help="Play these instead of drawn ones."
)
@click.option("--faults", type=_Names(list(FAULTS)), default=(), help="Draw only from these faults.")
@click.option(
    "-o", "pinned", callback=_pinned, multiple=True, metavar="KEY=VALUE",
    help="Pin what a seed draws: a key of broker configuration, or replicas, partitions, tree_s, …; may be repeated.",
)  # fmt: skip
@click.option(
    "--replay", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Play a sim-SEED.json again."
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write a Parquet table of the seeds; those that it has are not played again. "
    "Failures (sim-SEED.json, sim-SEED.svg) go there too.  [default: no table, failures in .]",
)  # fmt: skip
@click.option(
    "--mistakes", is_flag=False, flag_value=MISTAKES, type=click.Path(path_type=Path), metavar="[DIR]",
    help="Play seeds (0..59) on a copy of the source tree for each small mistake: a patch in DIR, or in "
    "tests/simulation/mistakes.",
)  # fmt: skip
@click.option("--coverage", is_flag=True, help="List the marked branches and transitions that no seed has reached.")
@json_option
def command(
    *,
    seed: int | None,
    seeds: tuple[int, int] | None,
    minutes: float | None,
    workers: int,
    master: str | None,
    settings: tuple[str, ...],
    workloads: tuple[str, ...],
    faults: tuple[str, ...],
    pinned: dict[str, str],
    replay: Path | None,
    output: Path | None,
    mistakes: Path | None,
    coverage: bool,
    as_json: bool,
) -> None:
    """Play clusters with clients and faults in virtual time, and check what they promise.

    A seed decides everything: the cluster, its clients, the faults and every order of events. Exits with 1 if a check
    finds something.
    """
    if mistakes is not None:
        if seed is not None or minutes or workloads or faults or pinned or replay or output or coverage or master:
            raise click.UsageError("--mistakes takes --seeds, --workers and --json, and no other option.")
        sys.exit(not play_mistakes(mistakes, seeds or SEEDS, workers=workers, as_json=as_json))
    if sum(each is not None for each in (seed, seeds, replay)) > 1 or (seed, seeds, replay, minutes) == (None,) * 4:
        raise click.UsageError(
            "Give one of --seed, --seeds, --replay and --mistakes, or --minutes, alone or with --seed or --seeds."
        )
    if replay is not None and (minutes or workloads or faults or pinned or coverage or workers > 1 or master or output):
        raise click.UsageError("--replay plays what its file says: it takes --json and no other option.")
    options = _spark_options(master, workers, settings)
    silence()
    if replay is not None:
        _replay(replay, as_json=as_json)
        return
    first, last = seeds or (seed or 0, seed if minutes is None else None)
    clock = SystemClock()
    began = told = clock.monotonic()
    ends_at = None if minutes is None else began + 60 * minutes
    plan = SeedPlan(seed=first, workloads=workloads, faults=faults, config=pinned)
    with ExitStack() as stack:
        table = stack.enter_context(_table(output, plan, clock))
        totals = table.read(first, last) if table is not None else Totals()
        numbers = itertools.count(first) if last is None else range(first, last + 1)
        plans = plans_of(plan, numbers, table.played if table is not None else (), ends_at=ends_at, clock=clock)
        results = _results(stack, plans, workers, master, options, (output or Path()) / "spark.log")
        try:
            for played in results:
                result = played.result
                totals.add(result)
                if table is not None:
                    table.add(played)
                if as_json:
                    print_json(msgspec.to_builtins(result))
                elif result.findings or first == last:
                    _report(result, output or Path(), is_shrunk=len(totals.failed) <= _MOST_SHRUNK)
                if first != last and clock.monotonic() - told > _PROGRESS_S:
                    told = clock.monotonic()
                    click.echo(totals.line(told - began), err=True)
        except KeyboardInterrupt:
            sys.unraisablehook = lambda _: None  # coroutines of the world that is given up cannot end without its loop
            raise
        finally:  # Ctrl-C, too, prints the totals so far
            if not as_json:
                click.echo(totals.line(clock.monotonic() - began))
                for name in unreached(totals.counts) if coverage else ():
                    click.echo(f"not reached: {name}")
    sys.exit(bool(totals.failed))


def _spark_options(master: str | None, workers: int, settings: tuple[str, ...]) -> dict[str, str]:
    if master is not None and workers > 1:
        raise click.UsageError("Give --workers or --master: with --master, Spark decides how many seeds run at once.")
    if settings and master is None:
        raise click.UsageError("--conf is for Spark: give --master, too.")
    return dict(map(key_and_value, settings))


def _table(output: Path | None, plan: SeedPlan, clock: Clock) -> AbstractContextManager["SeedTable | None"]:
    if output is None:
        return nullcontext()
    with packages_of("arrow", "tables of seeds"):
        from odradek.cli.sim.table import opened
    return opened(output, plan, clock)


def _results(
    stack: ExitStack, plans: Iterator[SeedPlan], workers: int, master: str | None, options: dict[str, str], log: Path
) -> Iterator[Played]:
    """Return the results of the plans; without a plan, Spark is not started."""
    if master is None or (first := next(plans, None)) is None:
        return play_seeds(plans, workers=workers)
    with packages_of("spark", "simulations on Spark"):
        from odradek.spark.jobs import jobs_session
    spark = stack.enter_context(jobs_session("odradek sim", master, options, log))
    return stack.enter_context(closing(play_on_spark(spark, itertools.chain([first], plans))))


def _report(result: SeedResult, output: Path, *, is_shrunk: bool) -> None:
    """Print a result. For a failure, also print and write the run with the fewest faults that still fails."""
    plan, verdict = result.plan, "FAILED" if result.findings else "no finding"
    click.echo(f"seed {plan.seed}: {verdict}, {result.virtual_s:.1f} virtual s, trace {result.digest}")
    click.echo(f"workloads: {', '.join(plan.workloads or draw_workloads(plan.seed))}")
    if not result.findings:
        print_faults(result)
        return
    if is_shrunk:
        fewest = shrunk(result)
        click.echo(f"{len(fewest.deeds)} of {len(result.deeds)} faults are enough")
        result = run_seed(replace(fewest.plan, shows_messages=True))
    print_failure(result)
    replay, picture = write_failure(result, output)
    click.echo(f"\nsee {picture}; play it again: odradek sim --replay {replay}")


def _replay(path: Path, *, as_json: bool) -> None:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=SeedResult)
        plan = known.plan
        if unknown := sorted({*plan.workloads} - WORKLOADS.keys() | {*plan.faults} - FAULTS.keys()):
            raise msgspec.ValidationError(f"there is no workload or fault {unknown[0]!r}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"{path} is not a sim-SEED.json of a failure: {error}", param_hint="--replay"
        ) from None
    result = run_seed(plan)
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        same = "the same trace" if result.digest == known.digest else f"not the trace {known.digest}: the code differs"
        click.echo(f"seed {result.plan.seed}: {'FAILED' if result.findings else 'no finding'}, {same}")
        print_failure(result)
    sys.exit(bool(result.findings))
