"""`odradek pipeline check`, `list`, `status` and `example`: the commands that run nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.common import print_listing, print_rows, say, table_options
from odradek.cli.pipeline.options import SparkChoice, files_argument, load_files, spark_options
from odradek.cli.pipeline.run import fields
from odradek.config.toml import TomlKeyError
from odradek.model import ConfigurationError, PreconditionError, UnavailableError, is_mistake
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.parsing import PipelineFile
from odradek.pipelines.config.pipelines import AnyPipeline, MirrorPipeline, Topics

if TYPE_CHECKING:
    from odradek.pipelines.status import Status


@click.command()
@files_argument
@spark_options
@click.option("--no-spark", is_flag=True, help="Only the files' keys, not the SQL and the types: needs no Spark.")
def check(files: tuple[Path, ...], spark_choice: SparkChoice, no_spark: bool) -> None:  # noqa: FBT001
    """Check files without running them: keys, SQL, field types, sinks, topics.

    Spark analyses the query as at a start. Topics must exist, if a broker answers within 5 s. An error begins with
    FILE:LINE. The exit status is 2 if a file is wrong, and 1 if only what it names is missing or cannot be used.
    """
    loaded = load_files(files)
    if no_spark:
        for file in loaded:
            say(f"{file.path}: {file.pipeline.name} is a valid {file.pipeline.kind} pipeline")
        return
    problems = []
    with spark_choice.session() as spark:
        for file in loaded:
            try:
                say(_checked(spark, file))
            except TomlKeyError as error:
                problems.append((file, error))
    for file, problem in problems[:-1]:
        say(f"odradek: {file.place(problem)}: {problem}", is_remark=True)
    if problems:
        file, problem = problems[-1]
        is_theirs = any(is_mistake(each) for _, each in problems)
        kind = ConfigurationError if is_theirs else PreconditionError
        raise kind(f"{file.place(problem)}: {problem}") from problem


def _checked(spark: Any, file: PipelineFile) -> str:
    from odradek.pipelines.queries import check_pipeline
    from odradek.pipelines.sinks import check_topics

    columns = check_pipeline(spark, file.pipeline)
    try:
        check_topics(file.pipeline)
    except UnavailableError as error:
        say(f"odradek: {file.path}: its topics are not checked: {error}", is_remark=True)
    described = "" if columns is None else f" with columns {columns}"
    return f"{file.path}: {file.pipeline.name} is a valid {file.pipeline.kind} pipeline{described}"


@click.command(name="list")
@files_argument
@table_options
def list_pipelines(files: tuple[Path, ...], as_json: bool) -> None:  # noqa: FBT001
    """List pipelines: what each reads and writes. A FILE may be a directory."""
    rows = [
        (file.pipeline.name, file.pipeline.kind, *_ends(file.pipeline), str(file.path)) for file in load_files(files)
    ]
    columns = ("NAME", "KIND", "FROM", "TO", "FILE")
    print_rows(columns, rows, as_json=as_json)


def _ends(pipeline: AnyPipeline) -> tuple[str, str]:
    """Return what a pipeline reads, and what it writes."""
    if isinstance(pipeline, MirrorPipeline):
        return _topics_text(pipeline.source), f"{pipeline.target.bootstrap_servers} {pipeline.target.topic_prefix}*"
    sink = pipeline.sink
    place = sink.options.get("topic") or sink.options.get("path", "")
    return " ".join(_topics_text(stream) for stream in pipeline.streams), f"{sink.format} {place}".strip()


def _topics_text(topics: Topics) -> str:
    return ",".join(topics.topics) or f"/{topics.pattern}/"


@click.command()
@files_argument
@table_options
def status(files: tuple[Path, ...], as_json: bool) -> None:  # noqa: FBT001
    """Show the state, counts, speed, lag and last error of pipelines, whichever process on this machine runs them.

    `killed` means that the process ended without reporting it. A FILE may be a directory.
    """
    from odradek.pipelines.status import read_status
    from odradek.runtime import system_runtime

    disk = system_runtime().disk
    found = [read_status(disk, file.pipeline) for file in load_files(files)]
    columns = (
        "NAME", "KIND", "STATE", "RECORDS-IN", "RECORDS-OUT", "BAD-ROWS", "BATCHES", "ROWS/S", "LAG", "RESTARTS",
        "ERROR",
    )  # fmt: skip
    print_listing(found, columns, _row, as_json=as_json, as_object=fields)


def _row(each: "Status") -> tuple[object, ...]:
    figures = each.figures
    return (
        each.name, each.kind, str(each.state), figures.records_in, figures.records_out, figures.bad_rows,
        figures.batches, figures.rows_per_second and round(figures.rows_per_second), figures.lag, each.restarts,
        each.error,
    )  # fmt: skip


@click.command()
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
def example(kind: str) -> None:
    """Print an example file."""
    click.echo(EXAMPLES[kind], nl=False)
