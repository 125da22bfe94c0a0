"""`odradek pipeline`: Spark jobs from TOML files, whose keys are in `odradek.pipelines.config`."""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.model import UnavailableError
from odradek.pipelines.config import AnyPipeline, load_pipeline
from odradek.pipelines.examples import EXAMPLES

if TYPE_CHECKING:
    from rich.live import Live

    from odradek.pipelines.runner import Status

_FILES: Final = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False)
)


@click.group(name="pipeline")
def command() -> None:
    """Run a Spark pipeline from a TOML file."""


@command.command()
@_FILES
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Spark's threads.  [default: one per core]")
@click.option("--memory", default="1g", show_default=True, metavar="SIZE", help="The JVM's heap.")
@click.option("--json", "as_json", is_flag=True, help="One object per line, one line per pipeline, at the end.")
def run(files: tuple[Path, ...], threads: int | None, memory: str, as_json: bool) -> None:  # noqa: FBT001
    """Run pipelines side by side, until they have ended or Ctrl-C.

    Each continues from its checkpoint, and commits its progress to its own consumer group: `odradek groups describe`
    shows its lag.
    """
    # Everything is checked before the JVM starts, which takes seconds.
    pipelines = _load(files)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # These loggers report at length a failed or interrupted call into the JVM, of which one line is enough.
    for name in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        from odradek.pipelines.runner import run_pipelines
        from odradek.spark.session import local_session, stop_session
    except ModuleNotFoundError as error:
        raise UnavailableError(f"pipelines need {error.name}: pip install 'odradek[spark]'") from error

    spark = local_session("odradek pipeline", threads=threads, memory=memory)
    latest: list[Status] = []
    try:
        with _screen(enabled=not as_json) as live:
            run_pipelines(spark, pipelines, on_status=_keep(latest, live))
    finally:
        for status in latest:
            click.echo(json.dumps(_fields(status)) if as_json else _line(status))
        stop_session(spark)


@command.command()
@_FILES
def check(files: tuple[Path, ...]) -> None:
    """Check whether files are valid, without running anything."""
    for pipeline in _load(files):
        click.echo(f"{pipeline.name}: a valid {pipeline.kind} pipeline")


@command.command()
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
def example(kind: str) -> None:
    """Print an example file."""
    click.echo(EXAMPLES[kind], nl=False)


def _load(files: Sequence[Path]) -> list[AnyPipeline]:
    """Return the pipelines. Raises `click.UsageError` for two with one name, group or checkpoint."""
    pipelines: list[AnyPipeline] = []
    for file in files:
        pipeline = load_pipeline(file)
        for other in pipelines:
            for what in ("name", "group", "checkpoint"):
                if getattr(pipeline, what) == getattr(other, what):
                    raise click.UsageError(
                        f"{file}: another file has the same {what}, {getattr(pipeline, what)}; choose another one"
                    )
        pipelines.append(pipeline)
    return pipelines


def _screen(*, enabled: bool) -> "AbstractContextManager[Live | None]":
    """Show a few lines that change, if stderr is a terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not (enabled and console.is_terminal):
        return nullcontext()
    return Live(console=console, transient=True, refresh_per_second=4)


def _keep(latest: "list[Status]", live: "Live | None") -> "Callable[[Sequence[Status]], None]":
    def keep(statuses: "Sequence[Status]") -> None:
        latest[:] = statuses
        if live is not None:
            live.update("\n".join(_line(status) for status in statuses))

    return keep


def _line(status: "Status") -> str:
    figures = status.figures
    late = f", {figures.records_late:,} too late" if figures.records_late else ""
    dead = f", {figures.dead_letters:,} dead letters" if figures.dead_letters else ""
    tombstones = f", {figures.tombstones:,} tombstones" if figures.tombstones else ""
    return (
        f"{status.name}: {figures.records_in:,} records in, {figures.records_out:,} out{late}{dead}{tombstones}, "
        f"{figures.batches:,} batches, {status.seconds:.1f} s, {'running' if status.active else 'done'}"
    )


def _fields(status: "Status") -> dict[str, object]:
    figures = status.figures
    return {
        "name": status.name,
        "kind": status.kind,
        "records_in": figures.records_in,
        "records_out": figures.records_out,
        "records_late": figures.records_late,
        "dead_letters": figures.dead_letters,
        "tombstones": figures.tombstones,
        "batches": figures.batches,
        "seconds": round(status.seconds, 3),
    }
