"""`odradek consume`: write records to standard output, as kcat does."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from odradek.cli.common import client_settings, cluster_options, progress, run
from odradek.cli.formats import Formatter, formatter, json_formatter, unescape
from odradek.clients import Consumer
from odradek.clients.consumer import ConsumerSettings
from odradek.model import KafkaError, TopicPartition, validate_topic_name

_OFFSET = re.compile(r"beginning|earliest|end|latest|-?\d+|@\d+")
_METADATA_TIMEOUT_MS = 2_000
"""Limit of the wait for a topic's metadata, long enough for a topic that was just created."""
_POLL_MS = 200
"""Time between two checks whether the end has been reached."""


class _Selection(Struct, frozen=True, kw_only=True):
    """The topics, partitions and offsets to read."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    group: str | None
    offset: str
    count: int | None
    exit_at_end: bool


_HELP: Final = """Read TOPICs to standard output, by default only new records.

\b
Formats:  %s value   %S its length   %k key   %K its length   %h headers
          %t topic   %p partition    %o offset   %T timestamp   %% percent

\b
odradek consume flights --from-beginning -e -f '%p %o %k %s\\n'
odradek consume flights -o -10 -e              the last ten of each partition
odradek consume flights -g readers --json
"""


@click.command(name="consume", help=_HELP)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--group", "-g", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition; may be repeated.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Start at the first record; with --group, where no offset is committed."
)
@click.option("--offset", "-o", metavar="OFFSET", help="beginning, end, a number, -N (the last N), or @TIME in ms.")
@click.option("--count", "-c", type=click.IntRange(min=1), help="Exit after this number of records.")
@click.option("--exit-eof", "-e", is_flag=True, help="Exit when everything has been read.")
@click.option("--format", "-f", "template", metavar="TEXT", help=r"For instance '%t %p %o %k %s\n'; see below.")
@click.option("--key-delimiter", "-K", metavar="TEXT", help="Print keys, and this text between key and value.")
@click.option("--delimiter", "-D", metavar="TEXT", default="\\n", help=r"The end of a record.  [default: \n]")
@click.option("--null", "-Z", is_flag=True, help="Print NULL for a key or value that is null.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line; keys and values as base64.")
@click.option(
    "--property", "-X", "properties", multiple=True, metavar="KEY=VALUE", help="One of Kafka's consumer keys."
)
@cluster_options
def command(
    *,
    topics: Sequence[str],
    group: str | None,
    partitions: Sequence[int],
    from_beginning: bool,
    offset: str | None,
    count: int | None,
    exit_eof: bool,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str,
    null: bool,
    as_json: bool,
    properties: Sequence[str],
    bootstrap_server: str | None,
    command_config: str | None,
) -> None:
    """Read records. `_HELP` is the help text."""
    for topic in topics:
        validate_topic_name(topic)
    if group is not None and (offset is not None or partitions):
        raise click.UsageError("--group excludes --partition and --offset, which the group decides")
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning is the same as --offset beginning: give only one of them")
    if offset is not None and not _OFFSET.fullmatch(offset):
        raise click.BadParameter(f"beginning, end, a number, -N or @TIME, not {offset!r}", param_hint="--offset")
    render = _renderer(template, key_delimiter, delimiter, null=null, as_json=as_json)
    settings = client_settings(bootstrap_server, command_config, ConsumerSettings, properties)
    # With --exit-eof, a short wait reports the end soon, not after a long poll.
    wait_ms = {"fetch_max_wait_ms": 50} if exit_eof else {}
    settings = {"max_poll_records": 10_000, "allow_auto_create_topics": False} | wait_ms | settings
    if from_beginning:
        settings["auto_offset_reset"] = "earliest"
    selection = _Selection(
        topics=tuple(dict.fromkeys(topics)),
        partitions=tuple(partitions),
        group=group or settings.pop("group_id", None),
        offset="beginning" if from_beginning else offset or "end",
        count=count,
        exit_at_end=exit_eof,
    )
    run(_consume(selection, settings, render))


def _renderer(
    template: str | None, key_delimiter: str | None, delimiter: str, *, null: bool, as_json: bool
) -> Formatter:
    """Return the function that formats a record as bytes."""
    if as_json:
        return json_formatter
    nothing = b"NULL" if null else b""
    if template is not None:
        return formatter(template, null=nothing)
    end = unescape(delimiter)
    if key_delimiter is None:
        return lambda record: (nothing if record.value is None else record.value) + end
    between = unescape(key_delimiter)
    return lambda record: b"".join(
        (nothing if record.key is None else record.key, between, nothing if record.value is None else record.value, end)
    )


async def _consume(selection: _Selection, settings: dict[str, Any], render: Formatter) -> None:
    """Read until the end, the wanted count, or cancellation."""
    write = sys.stdout.buffer.write
    left = selection.count
    async with Consumer(group_id=selection.group, **settings) as consumer:
        total = await _start(consumer, selection)
        # On a terminal the records themselves are the progress.
        wanted = not sys.stdout.isatty()
        with progress(f"consuming {' '.join(selection.topics)}", total, unit="records", wanted=wanted) as advance:
            while left is None or left > 0:
                records = await consumer.poll(_POLL_MS if selection.exit_at_end else None, left)
                for record in records:
                    write(render(record))
                if records:
                    sys.stdout.buffer.flush()
                    advance(len(records))
                    left = left - len(records) if left is not None else None
                if selection.exit_at_end and _is_at_end(consumer):
                    return


async def _start(consumer: Consumer, selection: _Selection) -> int | None:
    """Subscribe or assign, and return the number of records to come, None if it is not known."""
    known = {
        topic: await consumer.partitions_for_topic(topic, timeout_ms=_METADATA_TIMEOUT_MS) for topic in selection.topics
    }
    if selection.group is not None:
        consumer.subscribe(selection.topics)
        return selection.count
    partitions = [
        TopicPartition(topic, number) for topic, numbers in known.items() for number in selection.partitions or numbers
    ]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            count = len(known[partition.topic])
            raise click.BadParameter(
                f"topic {partition.topic} has no partition {partition.partition}, only {count}",
                param_hint="--partition",
            )
    consumer.assign(partitions)
    starts = await _seek(consumer, partitions, selection.offset)
    if not selection.exit_at_end:
        return selection.count
    ends = await consumer.end_offsets(partitions)
    available = sum(max(ends[partition] - starts[partition], 0) for partition in partitions)
    return available if selection.count is None else min(available, selection.count)


async def _seek(consumer: Consumer, partitions: Sequence[TopicPartition], offset: str) -> dict[TopicPartition, int]:
    """Seek each partition to `--offset`, and return the positions."""
    beginnings = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    if offset.startswith("@"):
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, int(offset[1:])))
        starts = {partition: each.offset if each is not None else ends[partition] for partition, each in found.items()}
    else:
        where = _where(offset)
        starts = {partition: where(beginnings[partition], ends[partition]) for partition in partitions}
    for partition, start in starts.items():
        consumer.seek(partition, start)
    return starts


def _where(offset: str) -> Callable[[int, int], int]:
    """Return a function from a partition's beginning and end offsets to the offset to start from."""
    if offset in {"beginning", "earliest"}:
        return lambda beginning, _: beginning
    if offset in {"end", "latest"}:
        return lambda _, end: end
    number = int(offset)
    if number < 0:
        return lambda beginning, end: max(beginning, end + number)
    return lambda beginning, end: min(max(beginning, number), end)


def _is_at_end(consumer: Consumer) -> bool:
    """Return whether partitions are assigned and all of them are read to their ends."""
    try:
        return bool(consumer.assignment()) and all(map(consumer.is_at_end, consumer.assignment()))
    except KafkaError:
        return False
