"""Runs the demo: `make demo`, or `python -m demo --rows 20000` for a shorter one. Exit status 1 if a count is wrong."""

import concurrent.futures
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import uvloop
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.checks import Check, Delay, GroupProgress, check_archive, check_delays, check_mirror, failures, group_progress
from demo.jobs import write_jobs
from demo.kill_broker import LeaderKill
from demo.publish import create_topics, publish
from demo.source import FLIGHTS, WEATHER, Input, data_directory, read_input
from odradek.model import OdradekError, TopicPartition
from odradek.pipelines.runner import run_pipelines
from odradek.pipelines.status import Status
from odradek.spark.session import local_session, stop_session
from odradek.testing.servers.odradek_process import ServedBroker, SupervisedBrokers

PARTITIONS: Final = 4
BATCHES: Final = 5
"""About how many micro-batches the real-time pipeline takes."""
BATCHES_BEFORE_THE_KILL: Final = 2
BROKERS: Final = 3


@click.command()
@click.option("--rows", type=click.IntRange(min=1_000), metavar="N", help="The first N flights only.")
def main(rows: int | None) -> None:
    """Run three brokers, a year of real flights and three Spark pipelines, kill a broker, check the results."""
    signal.signal(signal.SIGTERM, _interrupt)
    logging.basicConfig(level=logging.ERROR)
    # These log long texts about a call into the JVM that Ctrl-C interrupts.
    for name in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    console = Console()
    try:
        with ExitStack() as cleanup:
            directory = Path(tempfile.mkdtemp(prefix="odradek-demo-"))
            cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
            try:
                problems = _run(console, directory, cleanup, rows)
            finally:
                # A second Ctrl-C would leave behind what the first one is cleaning up.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left behind")
        sys.exit(130)
    except OdradekError as error:
        console.print(f"[red]the demo failed:[/] {error}")
        sys.exit(1)
    sys.exit(1 if problems else 0)


def _run(console: Console, directory: Path, cleanup: ExitStack, rows: int | None) -> list[str]:
    """Run the whole demo; return the failed checks. `cleanup` stops everything that was started, in reverse order."""
    started_at = time.monotonic()
    pool = cleanup.enter_context(concurrent.futures.ThreadPoolExecutor(max_workers=1))
    cluster = SupervisedBrokers(directory / "source", brokers=BROKERS)
    mirror = ServedBroker(directory / "target", options={"transaction.two.phase.commit.enable": "true"})
    for servers in (cluster, mirror):
        cleanup.push(servers)
    # The JVM starts while the records are published.
    log = directory / "spark.log"
    spark = pool.submit(local_session, "odradek demo", short_lived=True, keep_classes=False, log=log)
    cleanup.callback(_stop_spark, spark)
    for servers in (cluster, mirror):
        servers.start()
    source, target = cluster.bootstrap_servers, mirror.bootstrap_servers
    console.print(f"brokers    {source} and, for the mirror, {target}", highlight=False, soft_wrap=True)
    given = read_input(data_directory(), partitions=PARTITIONS, most_flights=rows)
    console.print(
        f"input      {given.flights:,} flights, {given.keyless:,} of them without a tail number\n"
        f"           {given.weather:,} hours of weather, {given.end_records} end records"
    )
    publishing = _publish(console, source, given)
    jobs = write_jobs(directory, source=source, target=target, batch=len(given.events) // BATCHES)
    kill = LeaderKill(cluster, TopicPartition(FLIGHTS, 0), pool)
    statuses = _watch(console, spark.result(), jobs, log, kill)
    console.print(f"killed     {kill.result()}", highlight=False, soft_wrap=True)
    groups = uvloop.run(group_progress(source, [job.group for job in jobs]))
    delays, worst = check_delays(directory / "out" / "delays", given)
    checks = [
        *delays,
        *check_archive(directory / "out" / "archive", given),
        *uvloop.run(check_mirror(source, target, given)),
        *_check_figures(statuses, groups, given),
    ]
    problems = list(failures(checks))
    console.print(_table(given, publishing, statuses, groups))
    _print_worst(console, worst)
    for problem in problems:
        console.print(f"[red]off:[/] {problem}")
    if not problems:
        console.print(
            f"[green]all {len(checks)} counts agree with the source files[/], "
            f"{time.monotonic() - started_at:.0f} s in all"
        )
    return problems


def _publish(console: Console, source: str, given: Input) -> float:
    """Create the topics and fill them; return the seconds."""
    bar = Progress(TextColumn("publishing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    began = time.monotonic()
    with bar:
        task = bar.add_task("publish", total=len(given.events))

        async def work() -> None:
            await create_topics(source, {FLIGHTS: PARTITIONS, WEATHER: PARTITIONS}, BROKERS)
            await publish(source, given.events, lambda count: bar.advance(task, count))

        uvloop.run(work())
    return time.monotonic() - began


def _watch(console: Console, spark: Any, jobs: Sequence[Any], log: Path, kill: LeaderKill) -> list[Status]:
    """Run the jobs side by side, with a status line for each, and kill a broker after the first batches."""
    with Live(console=console, transient=True, refresh_per_second=4) as live:

        def show(statuses: Sequence[Status]) -> None:
            live.update(Group(*(_line(status) for status in statuses)))
            if max(status.figures.batches for status in statuses) >= BATCHES_BEFORE_THE_KILL:
                kill.start()

        try:
            return run_pipelines(spark, jobs, on_status=show)
        except OdradekError:
            live.stop()
            console.print(log.read_text()[-4_000:], markup=False, highlight=False)
            raise


def _line(status: Status) -> str:
    figures = status.figures
    return (
        f"{status.name:10} {figures.records_in:>9,} in {figures.records_out:>9,} out  "
        f"{figures.batches:>3} batches  {status.seconds:5.1f} s{'' if status.active else f'  {status.state}'}"
    )


def _check_figures(statuses: Sequence[Status], groups: Mapping[str, GroupProgress], given: Input) -> list[Check]:
    """Check Spark's counts, and the committed offsets and lag of the groups."""
    expected = {
        "delays": (len(given.events), len(given.hours)),
        "archive": (given.flights + 1, given.flights),
        "mirror": (len(given.events), len(given.events)),
    }
    checks = []
    for status in statuses:
        records_in, records_out = expected[status.name]
        checks += [
            Check(f"{status.name}: records in", records_in, status.figures.records_in),
            Check(f"{status.name}: records out", records_out, status.figures.records_out),
            Check(f"{status.name}: records too late", 0, status.figures.records_late),
            Check(f"{status.name}: committed by its group", records_in, groups[status.name].committed),
            Check(f"{status.name}: lag of its group", 0, groups[status.name].lag),
        ]
    return checks


def _table(given: Input, publishing: float, statuses: Sequence[Status], groups: dict[str, GroupProgress]) -> Table:
    table = Table(title="three pipelines over the same topics, side by side", title_justify="left")
    table.add_column("step", no_wrap=True)
    for column in ("records in", "records out", "seconds", "rows/s", "lag"):
        table.add_column(column, justify="right")
    count = len(given.events)
    table.add_row("publish", f"{count:,}", f"{count:,}", f"{publishing:.1f}", f"{count / publishing:,.0f}", "")
    for status in statuses:
        figures = status.figures
        table.add_row(
            f"{status.name} ({status.kind.replace('_', ' ')})",
            f"{figures.records_in:,}",
            f"{figures.records_out:,}",
            f"{status.seconds:.1f}",
            f"{figures.records_in / status.seconds:,.0f}",
            f"{groups[status.name].lag:,}",
        )
    return table


def _print_worst(console: Console, worst: Sequence[Delay]) -> None:
    console.print("the worst hours of the year, from the real-time result:")
    for row in worst:
        mean = row.delay_minutes / max(row.departed, 1)
        wind = "?" if row.mean_wind is None else f"{row.mean_wind:.0f}"
        console.print(
            f"  {row.hour:%Y-%m-%d %H:%M} UTC  {row.carrier}  {row.departed:>2} of {row.flights:>2} flights left, "
            f"{mean:4.0f} min late, wind {wind:>2} mph",
            highlight=False,
        )


def _stop_spark(spark: "concurrent.futures.Future[Any]") -> None:
    """Stop Spark; if it is still starting, wait for that first."""
    if spark.exception() is None:
        stop_session(spark.result())


def _interrupt(number: int, frame: object) -> NoReturn:
    """Handle SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
