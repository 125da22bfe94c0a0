"""`odradek table`: describe a table, compare it with its topic, keep it small, accept a batch that was refused."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
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
from odradek.runtime import system_runtime

with packages_of("tables", "tables"):
    from odradek.cli.table.checking import check_topic
    from odradek.tables.contents import PipelineProgress, check_files, describe_table
    from odradek.tables.housekeeping import TARGET_BYTES, clean, compact, expire
    from odradek.tables.location import TableLocation, parse_location
    from odradek.tables.table import accept_next

_ROWS: Final = ("PARTITION", "FROM", "TO", "RECORDS", "ROWS", "MISSING", "REPEATED", "UNKNOWN", "EXPIRED")


@click.group(name="table", cls=CommandGroup)
def command() -> None:
    """Describe, check and tidy the Iceberg tables that pipelines write."""


location_options = options(
    click.argument("table", metavar="TABLE"),
    click.option("--catalog", metavar="NAME", help="TABLE is NAMESPACE.NAME in this catalog of ~/.pyiceberg.yaml."),
    click.option(
        "--catalog-property", "-o", "properties", multiple=True, metavar="KEY=VALUE",
        help="A property of the catalog, as uri or s3.endpoint; repeatable. TABLE is NAMESPACE.NAME then.",
    ),
)  # fmt: skip
"""TABLE is a directory without them."""


def _older_than(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--older-than", type=Age(), default=default, show_default=True, metavar="AGE", help="Such as '12 hours'."
    )


class Age(click.ParamType[timedelta]):
    """A number of minutes, hours or days."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?\s*", str(value))
        if found is None:
            self.fail(f"{value!r} is no age: give one as '90 minutes', '12 hours' or '3 days'", param, ctx)
        return timedelta(**{f"{found[2]}s": float(found[1])})


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
        ("key", ", ".join(found.key) or "-"),
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
    A table with a key, which must be that of the records, is compared with the last value of each key. The exit status
    is 1 if rows are missing, repeated or unknown.
    """
    location = _location(table, catalog, properties)
    files = check_files(location)
    if topic is None:
        say(f"{location}: {files:,} files are there, each listed once")
        return
    found = run(check_topic(location, topic, pipeline))
    has_key = bool(describe_table(location).key)
    rows = [
        (number, start, end, each.records, each.rows, each.missing, each.repeated, each.unknown, expired)
        for number, start, end, expired, each in found
    ]
    print_rows(_ROWS, rows, as_json=as_json)
    wrong = [(number, each) for number, _, _, _, each in found if not each.is_exact]
    if wrong:
        raise PreconditionError(_difference(location, topic, wrong, has_key=has_key))
    if not as_json:
        records = sum(row[3] for row in rows)
        what = f"the last value of each of the {records:,} keys" if has_key else f"each of the {records:,} records"
        say(f"{location} has {what} of {topic}{'' if has_key else ' once'}")


def _difference(location: TableLocation, topic: str, wrong: list[tuple[int, Any]], *, has_key: bool) -> str:
    number, each = wrong[0]
    unknown = "no key's last value" if has_key else "no record's"
    kinds = (("missing", each.first_missing), ("repeated", each.first_repeated), (unknown, each.first_unknown))
    first = ", ".join(f"offset {offset} is {kind}" for kind, offset in kinds if offset is not None)
    totals = [sum(getattr(each, name) for _, each in wrong) for name in ("missing", "repeated", "unknown")]
    what = "the last value of each key" if has_key else "each record"
    return (
        f"the table {location} does not have {what} of {topic} once: {totals[0]:,} are missing, {totals[1]:,} rows are "
        f"repeated, {totals[2]:,} are {unknown}; in {topic}-{number}, {first}"
    )


@command.command()
@location_options
@click.argument("pipeline", metavar="PIPELINE")
@click.option("--new", is_flag=True, help="The table need not have rows of PIPELINE, as after it was made anew.")
def accept(*, table: str, catalog: str | None, properties: tuple[str, ...], pipeline: str, new: bool) -> None:
    """Accept the next batch of PIPELINE as it is, after it was refused: it may repeat rows, or leave some out."""
    location = _location(table, catalog, properties)
    accept_next(location, pipeline, is_new=new)
    say(f"{location}: the next batch of {pipeline} is accepted as it is")


@command.command(name="expire")
@location_options
@click.option("--keep", type=click.IntRange(min=1), default=10, show_default=True, help="The newest snapshots to keep.")
@_older_than("5 days")
def expire_snapshots(
    *, table: str, catalog: str | None, properties: tuple[str, ...], keep: int, older_than: timedelta
) -> None:
    """Remove old snapshots, and the files that only they have. Tags, branches and their snapshots stay."""
    location = _location(table, catalog, properties)
    found = expire(location, keep=keep, before_ms=_before_ms(older_than))
    say(f"{location}: {found.snapshots:,} snapshots are expired, {found.files:,} files removed")


@command.command(name="compact")
@location_options
@click.option(
    "--target-file-bytes", type=click.IntRange(min=1), default=TARGET_BYTES, show_default=True,
    help="Merge files of less than half of this into files of about this.",
)  # fmt: skip
def compact_files(*, table: str, catalog: str | None, properties: tuple[str, ...], target_file_bytes: int) -> None:
    """Merge the small files of each partition, in a snapshot that changes no row. The pipeline may go on meanwhile.

    The old files stay for older snapshots, until `expire` removes these.
    """
    location = _location(table, catalog, properties)
    found = compact(location, target_bytes=target_file_bytes)
    say(f"{location}: {found.before:,} files are merged into {found.after:,}")


@command.command(name="clean")
@location_options
@_older_than("3 days")
def clean_files(*, table: str, catalog: str | None, properties: tuple[str, ...], older_than: timedelta) -> None:
    """Remove files of TABLE's directory that no snapshot lists: of failed tasks and of killed drivers.

    A batch that is being written has such files, too: --older-than must be longer than the longest batch takes.
    """
    location = _location(table, catalog, properties)
    removed = clean(location, before_ms=_before_ms(older_than))
    say(f"{location}: {removed:,} files that no snapshot lists are removed")


def _before_ms(older_than: timedelta) -> int:
    return system_runtime().clock.now_ms() - round(older_than.total_seconds() * 1000)


__all__ = ["command"]
