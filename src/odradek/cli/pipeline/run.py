"""`odradek pipeline run`: pipelines side by side, with a line of progress for each."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from odradek.cli.checks import ADDRESS
from odradek.cli.common import say
from odradek.cli.pipeline.options import SparkChoice, files_argument, load_files, spark_options
from odradek.model import ConfigurationError, OdradekError, parse_host_port
from odradek.security import is_loopback

if TYPE_CHECKING:
    from rich.live import Live

    from odradek.pipelines.config.parsing import PipelineFile
    from odradek.pipelines.status import Status


@click.command()
@files_argument
@spark_options
@click.option(
    "--every",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two lines of progress when stderr is not a terminal; 0: none.",
)
@click.option("--metrics-listen", type=ADDRESS, help="The address of /metrics, for Prometheus.")
@click.option("--allow-anonymous-network", is_flag=True, help="Serve metrics to other machines, too.")
@click.option("--json", "as_json", is_flag=True, help="One object per line, one line per pipeline, at the end.")
def run(
    files: tuple[Path, ...],
    *,
    spark_choice: SparkChoice,
    every: float,
    metrics_listen: str | None,
    allow_anonymous_network: bool,
    as_json: bool,
) -> None:
    """Run pipelines side by side, until they have ended or Ctrl-C.

    A FILE may be a directory: all its *.toml files. Each pipeline continues from its checkpoint, restarts by its own
    policy, and commits its progress to its own consumer group: `odradek groups describe` shows its lag. The exit status
    is 1 if one has failed, and 130 after Ctrl-C. Errors about a key name FILE:LINE.
    """
    # Everything is checked before the JVM starts, which takes seconds.
    loaded = load_files(files)
    metrics = None if metrics_listen is None else parse_host_port(metrics_listen)
    if metrics is not None and not (allow_anonymous_network or is_loopback(metrics[0])):
        raise ConfigurationError(
            f"--metrics-listen {metrics_listen} can be reached from other machines: add --allow-anonymous-network to "
            "allow that, or listen on localhost"
        )
    latest: list[Status] = []
    try:
        _run(loaded, latest, spark_choice, metrics, every)
    except KeyboardInterrupt:
        latest = latest or _stopped(loaded)
        raise
    finally:
        for status in latest:
            say(json.dumps(fields(status)) if as_json else line(status))


def _run(
    loaded: "Sequence[PipelineFile]",
    latest: "list[Status]",
    spark_choice: SparkChoice,
    metrics: tuple[str, int] | None,
    every: float,
) -> None:
    """Run pipelines in a Spark of their own; keep their statuses in `latest`, and print their errors."""
    from odradek.pipelines.config.pipelines import TABLE_FORMAT, QueryPipeline

    sinks = [file.pipeline.sink.format for file in loaded if isinstance(file.pipeline, QueryPipeline)]
    with spark_choice.session(for_tables=TABLE_FORMAT in sinks) as spark:
        from odradek.pipelines.errors import PipelineError, with_notes
        from odradek.pipelines.metrics import served_metrics
        from odradek.pipelines.runner import run_pipelines

        by_name: dict[str, PipelineFile] = {file.pipeline.name: file for file in loaded}

        def report(name: str, failure: OdradekError) -> None:
            say(f"odradek: {by_name[name].place(failure)}: {with_notes(failure)}", is_remark=True)

        try:
            with _screen() as live, nullcontext() if metrics is None else served_metrics(metrics, latest):
                pipelines = [file.pipeline for file in loaded]
                run_pipelines(spark, pipelines, on_status=_show(latest, live, every), on_failure=report)
        except PipelineError as error:
            # `report` has printed its failures.
            raise click.exceptions.Exit(1) from error


def _stopped(files: "Sequence[PipelineFile]") -> "list[Status]":
    """Return the statuses of pipelines that were stopped while Spark started."""
    from odradek.pipelines.status import State, Status

    return [Status(name=each.pipeline.name, kind=each.pipeline.kind, state=State.STOPPED) for each in files]


def _screen() -> "AbstractContextManager[Live | None]":
    """Return a context of a live display, or of None if stderr is not a terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    return Live(console=console, transient=True, refresh_per_second=4) if console.is_terminal else nullcontext()


def _show(latest: "list[Status]", live: "Live | None", every: float) -> "Callable[[Sequence[Status]], None]":
    """Return a callback that keeps statuses in `latest` and shows them in `live`, or else as lines.

    A line of a pipeline that has not ended is printed when its state changes, and after `every` seconds (0: no lines).
    """
    printed: dict[str, tuple[str, float]] = {}

    def show(statuses: "Sequence[Status]") -> None:
        latest[:] = statuses
        if live is not None:
            live.update("\n".join(line(status) for status in statuses))
            return
        for status in statuses if every else ():
            state, at = printed.get(status.name, ("", -every))
            if status.active and (status.state != state or status.seconds >= at + every):
                printed[status.name] = (status.state, status.seconds)
                say(line(status), is_remark=True)

    return show


def line(status: "Status") -> str:
    """Return a status as a line: counts, speed, lag, state. Its error is printed once, when it occurs."""
    figures = status.figures
    parts = [f"{figures.records_in:,} records in", f"{figures.records_out:,} out"]
    optional = ((figures.records_late, "too late"), (figures.bad_rows, "bad rows"), (figures.tombstones, "tombstones"))
    parts += [f"{count:,} {what}" for count, what in optional if count]
    parts.append(f"{figures.batches:,} batches")
    if figures.rows_per_second is not None and figures.batch_seconds is not None:
        parts.append(f"last {figures.batch_seconds:.2f} s at {figures.rows_per_second:,.0f} rows/s")
    if figures.lag is not None:
        parts.append(f"lag {figures.lag:,}")
    if status.restarts:
        parts.append(f"{status.restarts} restarts")
    parts += [f"{status.seconds:.1f} s", str(status.state)]
    return f"{status.name}: {', '.join(parts)}"


def fields(status: "Status") -> dict[str, Any]:
    found = msgspec.to_builtins(status)
    found |= found.pop("figures")
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}
