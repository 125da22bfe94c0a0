"""`odradek table`: describe a table, compare it with its topic, and accept a batch that was refused."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from odradek.cli import CommandGroup
from odradek.cli.common import (
    cluster_options,
    options,
    print_json,
    print_rows,
    print_table,
    run,
    say,
    settings_of,
    table_options,
)
from odradek.model import PreconditionError, packages_of

with packages_of("tables", "tables"):
    from odradek.cli.table.checking import check_topic
    from odradek.tables.contents import PipelineProgress, check_files, describe_table
    from odradek.tables.location import TableLocation, parse_location
    from odradek.tables.table import accept_next

_ROWS: Final = ("PARTITION", "FROM", "TO", "RECORDS", "ROWS", "MISSING", "REPEATED", "UNKNOWN", "EXPIRED")


@click.group(name="table", cls=CommandGroup)
def command() -> None:
    """Describe and check the Iceberg tables that pipelines write."""


location_options = options(
    click.argument("table", metavar="TABLE"),
    click.option("--catalog", metavar="NAME", help="TABLE is NAMESPACE.NAME in this catalog of ~/.pyiceberg.yaml."),
    click.option(
        "--catalog-property", "-o", "properties", multiple=True, metavar="KEY=VALUE",
        help="A property of the catalog, as uri or s3.endpoint; repeatable. TABLE is NAMESPACE.NAME then.",
    ),
)  # fmt: skip
"""TABLE is a directory without them."""


def _location(table: str, catalog: str | None, properties: tuple[str, ...]) -> TableLocation:
    if catalog is None and not properties:
        return parse_location({"path": table})
    given = {f"catalog.{key}": value for key, value in settings_of(properties).items()}
    return parse_location({"table": table, "catalog": catalog or ""} | given)


@command.command()
@location_options
@table_options
def describe(*, table: str, catalog: str | None, properties: tuple[str, ...], as_json: bool) -> None:
    """Show a table's size and columns, and the progress of its pipelines."""
    found = describe_table(_location(table, catalog, properties))
    if as_json:
        print_json(found)
        return
    rows = [
        ("table", found.table),
        ("rows", f"{found.rows:,}"),
        ("files", f"{found.files:,} of {found.bytes:,} bytes"),
        ("snapshots", f"{found.snapshots:,}"),
        ("partitioned by", ", ".join(found.partitioned_by) or "-"),
        ("columns", ", ".join(found.columns)),
        ("metadata", found.metadata),
    ]
    print_table(("WHAT", "VALUE"), rows)
    if found.pipelines:
        say("")
        print_table(
            ("PIPELINE", "BATCH", "COMMITTED", "BY", "TOPIC", "NEXT OFFSETS"), list(_pipelines(found.pipelines))
        )


def _pipelines(found: tuple[PipelineProgress, ...]) -> Iterator[tuple[object, ...]]:
    for each in found:
        when = datetime.fromtimestamp(each.committed_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        start = (each.pipeline, each.batch if each.is_in_main else f"{each.batch} (not in main)", when, each.writer)
        topics = [(topic, known.offsets) for source in each.progress for topic, known in (source or {}).items()]
        for topic, offsets in topics or [("-", {})]:
            yield (*start, topic, " ".join(f"{number}:{offset}" for number, offset in offsets.items()) or "-")


@command.command()
@location_options
@click.option("--topic", metavar="NAME", help="Compare the rows with the records of this topic, too.")
@click.option("--pipeline", metavar="NAME", help="Compare up to the progress of this one, if several write TABLE.")
@table_options
@cluster_options
def check(
    *,
    table: str,
    catalog: str | None,
    properties: tuple[str, ...],
    topic: str | None,
    pipeline: str | None,
    as_json: bool,
) -> None:
    """Check a table: each file is there and listed once. With --topic, each record is there once.

    The rows need the columns partition and offset, and topic if there are several. Records count as a consumer with
    read_committed reads them, from where the pipeline began. EXPIRED rows are older than the log and are not compared.
    The exit status is 1 if rows are missing, repeated or of no record.
    """
    location = _location(table, catalog, properties)
    files = check_files(location)
    if topic is None:
        say(f"{location}: {files:,} files are there, each listed once")
        return
    found = run(check_topic(location, topic, pipeline))
    rows = [
        (number, start, end, each.records, each.rows, each.missing, each.repeated, each.unknown, expired)
        for number, start, end, expired, each in found
    ]
    print_rows(_ROWS, rows, as_json=as_json)
    wrong = [(number, each) for number, _, _, _, each in found if not each.is_exact]
    if wrong:
        raise PreconditionError(_difference(location, topic, wrong))
    if not as_json:
        say(f"{location} has each of the {sum(row[3] for row in rows):,} records of {topic} once")


def _difference(location: TableLocation, topic: str, wrong: list[tuple[int, Any]]) -> str:
    number, each = wrong[0]
    kinds = (("missing", each.first_missing), ("repeated", each.first_repeated), ("no record's", each.first_unknown))
    first = ", ".join(f"offset {offset} is {kind}" for kind, offset in kinds if offset is not None)
    totals = [sum(getattr(each, name) for _, each in wrong) for name in ("missing", "repeated", "unknown")]
    return (
        f"the table {location} does not have each record of {topic} once: {totals[0]:,} are missing, {totals[1]:,} "
        f"rows are repeated, {totals[2]:,} are of no record; in {topic}-{number}, {first}"
    )


@command.command()
@location_options
@click.argument("pipeline", metavar="PIPELINE")
def accept(*, table: str, catalog: str | None, properties: tuple[str, ...], pipeline: str) -> None:
    """Accept the next batch of PIPELINE as it is, after it was refused: it may repeat rows, or leave some out."""
    location = _location(table, catalog, properties)
    accept_next(location, pipeline)
    say(f"{location}: the next batch of {pipeline} is accepted as it is")


__all__ = ["command"]
