"""`odradek partitions offsets` and `delete-records`: show partitions' offsets, and delete their oldest records."""

import json
from collections.abc import Mapping, Sequence
from typing import IO, Final

import click

from odradek.cli.checks import OFFSET
from odradek.cli.cluster_names import complete_topics
from odradek.cli.common import cluster_options, print_json, print_table, say, table_options, with_admin
from odradek.cli.partition_lists import TOPICS, partitions_of_topics
from odradek.clients import Admin
from odradek.clients.admin.records import HIGH_WATERMARK
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.clients.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.metadata.node_fields import fits
from odradek.model import ConfigurationError, KafkaError, TopicPartition
from odradek.texts.offset_specs import time_ms

_NAMES: Final = {
    "beginning": EARLIEST,
    "earliest": EARLIEST,
    "end": LATEST,
    "latest": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
}


def _when(text: str) -> int:
    """Parse a name of `_NAMES` or a time, as an option's `type`. Raises `click.BadParameter`."""
    return _NAMES[text] if text in _NAMES else time_ms(text)


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, type=TOPICS, metavar="TOPIC[:N,…]...", shell_complete=complete_topics
)
@click.option(
    "--at",
    "when",
    type=_when,
    metavar="WHEN",
    help="beginning, end, max-timestamp, or @TIME: the first record since then.  [default: both ends]",
)
@table_options
@cluster_options
def offsets(*, topics: Sequence[str], when: int | None, as_json: bool) -> None:
    """Show the first offset and the end of partitions, or the offset at a time."""
    wanted = {"earliest": EARLIEST, "latest": LATEST} if when is None else {"offset": when}

    async def work(client: Admin) -> dict[TopicPartition, dict[str, int]]:
        partitions = await partitions_of_topics(client, topics)
        found: dict[TopicPartition, dict[str, int]] = {each: {} for each in partitions}
        for name, at in wanted.items():
            for partition, each in (await client.list_offsets(dict.fromkeys(partitions, at))).items():
                found[partition][name] = each.offset
        return found

    found = with_admin(work)
    if as_json:
        for key, each in found.items():
            print_json({"topic": key.topic, "partition": key.partition, **each})
        return
    rows = [(*key, *(None if offset < 0 else offset for offset in each.values())) for key, each in found.items()]
    print_table(("TOPIC", "PARTITION", *(name.upper() for name in wanted)), rows)


@click.command(name="delete-records")
@click.argument("topics", nargs=-1, type=TOPICS, metavar="[TOPIC[:N,…]]...", shell_complete=complete_topics)
@click.option("--before", type=OFFSET, metavar="OFFSET", help="Delete the records before this offset.")
@click.option("--all", "is_all", is_flag=True, help="Delete all records.")
@click.option("--file", "-f", type=click.File("rb"), help="Offsets in the JSON of kafka-delete-records; - is stdin.")
@table_options
@cluster_options
@click.pass_context
def delete_records(
    ctx: click.Context,
    *,
    topics: Sequence[str],
    before: int | None,
    is_all: bool,
    file: IO[bytes] | None,
    as_json: bool,
) -> None:
    """Delete the records of partitions before an offset. Exits with 1 if a partition is refused."""
    if (before is not None) + is_all + (file is not None) != 1 or bool(topics) == (file is not None):
        raise click.UsageError("give TOPIC... with --before or --all, or give --file")
    planned = None if file is None else read_offsets(file)
    offset = HIGH_WATERMARK if before is None else before

    async def work(client: Admin) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        if planned is not None:
            return await _delete(client, planned)
        return await _delete(client, dict.fromkeys(await partitions_of_topics(client, topics), offset))

    deleted, errors = with_admin(work)
    if as_json:
        for key, start in deleted.items():
            print_json({"topic": key.topic, "partition": key.partition, "log_start_offset": start})
    elif deleted:
        print_table(("TOPIC", "PARTITION", "EARLIEST"), [(*key, start) for key, start in deleted.items()])
    for error in errors.values():
        say(f"odradek: {error}", is_remark=True)
    if errors:
        ctx.exit(1)


async def _delete(
    client: Admin, before: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    """Delete records; return the new log start offsets, and the errors, by partition."""
    try:
        return await client.delete_records(before), {}
    except RefusedPartitionsError as error:
        others = dict.fromkeys((each for each in before if each not in error.errors), EARLIEST)
        starts = {key: each.offset for key, each in (await client.list_offsets(others)).items()}
        return starts, error.errors


def read_offsets(file: IO[bytes]) -> dict[TopicPartition, int]:
    """Return the offsets before which records are deleted, from a file of `kafka-delete-records`; -1 deletes all.

    Raises `ConfigurationError` for a file of another form, without partitions, or with a partition twice.
    """
    name = getattr(file, "name", "stdin")
    found: dict[TopicPartition, int] = {}
    try:
        document = json.loads(file.read())
        entries = document["partitions"]
        if document.get("version", 1) != 1:
            raise ConfigurationError(f"{name}: version {document['version']!r} is not supported; write version 1")
        for each in entries:
            key, offset = TopicPartition(each["topic"], each["partition"]), each["offset"]
            if not (isinstance(key.topic, str) and fits(key.partition, 32) and fits(offset, 64)):
                raise TypeError
            if key in found:
                raise ConfigurationError(f"{name}: {key} is named twice; name it once")
            found[key] = offset
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(
            f'{name} is not of the form {{"partitions": [{{"topic": "t", "partition": 0, "offset": 5}}], "version": 1}}'
        ) from None
    if not found:
        raise ConfigurationError(f"{name} names no partition; name at least one")
    return found
