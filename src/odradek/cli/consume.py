"""`odradek consume`: write records to standard output, as kcat does."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from odradek.cli.checks import COUNT, ID
from odradek.cli.cluster_names import complete_topics
from odradek.cli.common import check_together, chosen_address, client_settings, cluster_options, progress, run, say
from odradek.cli.consume_from_tree import TreeSelection, consume_from_tree, tree_selection_options, tree_settings
from odradek.cli.partition_lists import TOPICS, topic_and_partitions
from odradek.cli.process import check_output
from odradek.clients import Consumer, ConsumerRecord
from odradek.clients.consumer import ConsumerSettings
from odradek.clients.offsets import ISOLATION_LEVELS
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.texts import several_lines
from odradek.texts.offset_specs import BEGINNING, END, Position, offset_range, within
from odradek.values.record_formats import Formatter, formatter, json_formatter, unescape
from odradek.values.value_formats import FORMATS, Show, Shown, shower

_METADATA_TIMEOUT_MS = 2_000
"""Limit of the wait for a topic's metadata, long enough for a topic that was just created."""
_POLL_MS = 200
"""Time between two checks whether the end has been reached, and whether the output is still read."""

_MOST_NAMED: Final = 3
"""Limit of the partitions in one message."""


class _Selection(Struct, frozen=True, kw_only=True):
    """The topics, partitions and offsets to read."""

    topics: Mapping[str, tuple[int, ...] | None]
    """The partitions of each topic, None for all."""
    group: str | None
    start: Position
    stop: Position | None
    count: int | None
    exit_at_end: bool


_HELP: Final = """Read TOPICs to standard output, by default only new records.

\b
Formats:  %s value   %S its length   %k key   %K its length   %h headers
          %t topic   %p partition    %o offset   %T timestamp   %% percent

\b
odradek consume flights --from-beginning -e -f '%p %o %k %s\\n'
odradek consume flights:0,3 -o -10 -e          the last ten of two partitions
odradek consume flights -o @PT1H.. -e --json --value-format json | jq .value

\b
Positions:  beginning   end   N an offset   -N the last N   @TIME the first record since
TIME:       2026-01-31T23:59 in UTC, …+01:00, ms since 1970, or PT1H for an hour ago
Range:      FROM..TO, without the record at TO and with either end missing, or 5:10
"""


@click.command(name="consume", help=_HELP)
@click.argument("topics", nargs=-1, type=TOPICS, metavar="TOPIC[:N,…]...", shell_complete=complete_topics)
@click.option("--group", "-g", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option("--partition", "-p", "partitions", multiple=True, type=ID, help="Only this partition; may be repeated.")
@click.option(
    "--from-beginning", is_flag=True, help="Start at the first record; with --group, where no offset is committed."
)
@click.option(
    "--offset",
    "-o",
    "wanted",
    type=offset_range,
    metavar="RANGE",
    help="Where to start, and to end: beginning, end, N, -N, @TIME, 5:10, @TIME..@TIME; see below.",
)
@click.option("--count", "-c", type=COUNT, help="Exit after this number of records.")
@click.option("--exit-eof", "-e", is_flag=True, help="Exit when everything has been read.")
@click.option(
    "--isolation-level",
    type=click.Choice(ISOLATION_LEVELS),
    help="With read_committed, only records of committed transactions and of none.  [default: read_uncommitted]",
)
@click.option("--format", "-f", "template", metavar="TEXT", help=r"For instance '%t %p %o %k %s\n'; see below.")
@click.option("--key-delimiter", "-K", metavar="TEXT", help="Print keys, and this text between key and value.")
@click.option("--delimiter", "-D", metavar="TEXT", help=r"The end of a record.  [default: \n]")
@click.option("--null", "-Z", is_flag=True, help="Print NULL for a key or value that is null.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, which `produce --json` reads.")
@click.option("--key-format", type=click.Choice(FORMATS), default="text", help="How keys are shown.")
@click.option("--value-format", type=click.Choice(FORMATS), default="text", help="How values are shown.")
@click.option("--key-schema", metavar="FILE[:MESSAGE]", help="The schema of keys in Avro or Protobuf.")
@click.option("--value-schema", metavar="FILE[:MESSAGE]", help="That of values: an .avsc file, or a descriptor file.")
@click.option(
    "--property", "-X", "properties", multiple=True, metavar="KEY=VALUE", help="One of Kafka's consumer keys."
)
@tree_selection_options
@cluster_options
def command(
    *,
    topics: Sequence[str],
    group: str | None,
    partitions: Sequence[int],
    from_beginning: bool,
    wanted: tuple[Position, Position | None] | None,
    count: int | None,
    exit_eof: bool,
    isolation_level: str | None,
    template: str | None,
    key_delimiter: str | None,
    delimiter: str | None,
    null: bool,
    as_json: bool,
    key_format: str,
    value_format: str,
    key_schema: str | None,
    value_schema: str | None,
    properties: Sequence[str],
    **of_the_tree: Any,
) -> None:
    """Read records. `_HELP` is the help text."""
    tree = TreeSelection(**of_the_tree)
    _check_topics(topics, tree)
    chosen = _topics(topics, partitions)
    check_together(
        ("--zookeeper", tree.zookeeper, "--bootstrap-server", chosen_address()),
        ("--zookeeper", tree.zookeeper, "--exit-eof", exit_eof),
        ("--zookeeper", tree.zookeeper, "--isolation-level", isolation_level),
        ("--from-beginning", from_beginning, "--offset", wanted),
        ("--json", as_json, "--format", template),
        ("--json", as_json, "--key-delimiter", key_delimiter),
        ("--json", as_json, "--delimiter", delimiter),
        ("--json", as_json, "--null", null),
        ("--format", template, "--key-delimiter", key_delimiter),
        ("--format", template, "--delimiter", delimiter),
    )
    shows = shower(key_format, key_schema, option="key"), shower(value_format, value_schema, option="value")
    if as_json:
        render = json_formatter(*shows)
    else:
        render = _renderer(template, key_delimiter, "\\n" if delimiter is None else delimiter, null=null)
        if (key_format, value_format) != ("text", "text"):
            render = _converting(render, *shows)
    if sys.stdout.isatty():
        render = _for_terminal(render)
    if tree.zookeeper is None:
        settings = client_settings(ConsumerSettings, properties)
        group = group or settings.pop("group_id", None)
    else:
        settings = tree_settings(properties, group=group, from_beginning=from_beginning)
    if (group is not None or tree.zookeeper is not None) and (wanted or partitions or any(chosen.values())):
        raise click.UsageError("a group decides on partitions and offsets: give no --partition or --offset beside it")
    if tree.zookeeper is not None:
        run(consume_from_tree(tree, list(chosen), settings, render, count))
        return
    # With --exit-eof, a short wait reports the end soon, not after a long poll.
    wait_ms = {"fetch_max_wait_ms": 50} if exit_eof else {}
    settings = {"max_poll_records": 10_000, "allow_auto_create_topics": False} | wait_ms | settings
    if from_beginning:
        settings["auto_offset_reset"] = "earliest"
    if isolation_level is not None:
        settings["isolation_level"] = isolation_level
    start, stop = wanted or (BEGINNING if from_beginning else END, None)
    selection = _Selection(
        topics=chosen, group=group, start=start, stop=stop, count=count, exit_at_end=exit_eof,
    )  # fmt: skip
    run(_consume(selection, settings, render))


def _check_topics(topics: Sequence[str], tree: TreeSelection) -> None:
    """Raise `click.UsageError` for no topics, for topics and a filter, and for options that need `--zookeeper`."""
    filters = [each for each in (tree.whitelist, tree.blacklist) if each is not None]
    if tree.zookeeper is None and (filters or tree.threads is not None or tree.verbose):
        raise click.UsageError("--threads, --whitelist, --blacklist and --verbose need --zookeeper")
    if not topics and not filters:
        raise click.UsageError("Missing argument 'TOPIC...'.")
    if len(filters) + bool(topics) > 1:
        raise click.UsageError("give TOPICs, --whitelist or --blacklist, only one of them")


def _topics(texts: Sequence[str], partitions: Sequence[int]) -> dict[str, tuple[int, ...] | None]:
    """Return the partitions of each topic of `TOPIC[:N,…]`, None for all."""
    found: dict[str, tuple[int, ...] | None] = {}
    for topic, numbers in map(topic_and_partitions, texts):
        if numbers is not None and partitions:
            raise click.UsageError(f"{topic}:{numbers[0]} and --partition: name the partitions in one way")
        wanted = numbers or tuple(partitions) or None
        before = found.get(topic, ())
        found[topic] = None if wanted is None or before is None else tuple(dict.fromkeys((*before, *wanted)))
    return found


def _converting(render: Formatter, show_key: Show, show_value: Show) -> Formatter:
    """Return a formatter of records whose keys and values are shown; stderr names those that cannot be."""

    def converted(record: ConsumerRecord, what: str, shown: Shown) -> bytes | None:
        if shown.error is not None:
            place = f"{record.topic}-{record.partition}, offset {record.offset}"
            say(f"odradek: {place}: the {what} is shown undecoded: {shown.error}", is_remark=True)
        content = shown.content
        return content.encode() if isinstance(content, str) else None if content is None else bytes(content)

    return lambda record: render(
        record._replace(
            key=converted(record, "key", show_key(record.key)),
            value=converted(record, "value", show_value(record.value)),
        )
    )


def _renderer(template: str | None, key_delimiter: str | None, delimiter: str, *, null: bool) -> Formatter:
    """Return the function that formats a record as bytes."""
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


def _for_terminal(render: Formatter) -> Formatter:
    """Return a formatter that writes control characters as symbols, safe for terminals."""
    return lambda record: several_lines(render(record).decode(errors="backslashreplace")).encode()


async def _consume(selection: _Selection, settings: dict[str, Any], render: Formatter) -> None:
    """Read until the end, the wanted count, or cancellation."""
    write = sys.stdout.buffer.write
    left = selection.count
    async with Consumer(group_id=selection.group, **settings) as consumer:
        total, stops = await _start(consumer, selection)
        # On a terminal the records themselves are the progress.
        wanted = not sys.stdout.isatty()
        with progress(f"consuming {' '.join(selection.topics)}", total, unit="records", wanted=wanted) as advance:
            while (left is None or left > 0) and not await _have_stopped(consumer, stops):
                records = await consumer.poll(_POLL_MS, left)
                if stops:
                    records = [each for each in records if each.offset < stops[each.topic, each.partition]]
                for record in records:
                    write(render(record))
                if records:
                    sys.stdout.buffer.flush()
                    advance(len(records))
                    left = left - len(records) if left is not None else None
                else:
                    check_output()
                if selection.exit_at_end and _is_at_end(consumer):
                    return


async def _have_stopped(consumer: Consumer, stops: Mapping[tuple[str, int], int]) -> bool:
    """Return whether all partitions have been read to the ends in `stops`, and pause those that have been."""
    for partition in consumer.assignment() - consumer.paused() if stops else ():
        if await consumer.position(partition) >= stops[partition]:
            consumer.pause(partition)
    return bool(stops) and consumer.paused() == consumer.assignment()


async def _start(consumer: Consumer, selection: _Selection) -> tuple[int | None, dict[tuple[str, int], int]]:
    """Subscribe or assign; return the number of records to come, None if it is not known, and the ends of the range."""
    known = {
        topic: await consumer.partitions_for_topic(topic, timeout_ms=_METADATA_TIMEOUT_MS) for topic in selection.topics
    }
    if selection.group is not None:
        consumer.subscribe(list(selection.topics))
        return selection.count, {}
    partitions = [
        TopicPartition(topic, number)
        for topic, numbers in known.items()
        for number in selection.topics[topic] or sorted(numbers)
    ]
    for partition in partitions:
        if partition.partition not in known[partition.topic]:
            count = len(known[partition.topic])
            raise click.BadParameter(
                f"topic {partition.topic} has no partition {partition.partition}, only {count}",
                param_hint="--partition",
            )
    consumer.assign(partitions)
    beginnings, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
    starts = await _offsets(consumer, selection.start, beginnings, ends)
    if selection.start.kind == "offset" and all(starts[each] > ends[each] for each in partitions):
        known_ends = ", ".join(f"{each} ends at {ends[each]}" for each in partitions[:_MOST_NAMED])
        raise KafkaError(ErrorCode.offset_out_of_range, f"there is no offset {selection.start.value} yet: {known_ends}")
    for partition, start in starts.items():
        starts[partition], remark = within(start, beginnings[partition], ends[partition])
        if remark:
            say(f"odradek: {partition} {remark}", is_remark=True)
        consumer.seek(partition, starts[partition])
    stops: dict[tuple[str, int], int] = {}
    if selection.stop is not None:
        stops = dict((await _offsets(consumer, selection.stop, beginnings, ends)).items())
    elif not selection.exit_at_end:
        return selection.count, {}
    available = sum(max(stops.get(each, ends[each]) - starts[each], 0) for each in partitions)
    return available if selection.count is None else min(available, selection.count), stops


async def _offsets(
    consumer: Consumer, place: Position, beginnings: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition; without a record since its time, the end."""
    if place.kind == "time":
        found = await consumer.offsets_for_times(dict.fromkeys(ends, place.value))
        return {partition: ends[partition] if each is None else each.offset for partition, each in found.items()}
    if place.kind == "last":
        return {partition: max(end - place.value, beginnings[partition]) for partition, end in ends.items()}
    if place.kind == "offset":
        return dict.fromkeys(ends, place.value)
    return dict(beginnings if place == BEGINNING else ends)


def _is_at_end(consumer: Consumer) -> bool:
    """Return whether partitions are assigned and all of them are read to their ends."""
    try:
        return bool(consumer.assignment()) and all(map(consumer.is_at_end, consumer.assignment()))
    except KafkaError:
        return False
