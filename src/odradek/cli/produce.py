"""`odradek produce`: records from lines, files or JSON lines, as kcat does."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

import click

from odradek.cli.checks import ID, key_and_value
from odradek.cli.cluster_names import complete_topics
from odradek.cli.common import check_together, client_settings, cluster_options, progress, run, say
from odradek.cli.partition_lists import TOPICS, topic_and_partitions
from odradek.cli.process import chunks_of_stdin
from odradek.clients import Producer, RecordMetadata
from odradek.clients.producer import ProducerSettings
from odradek.model import OdradekError
from odradek.values.record_formats import NewRecord, record_of_json, unescape
from odradek.values.value_formats import WRITTEN_FORMATS, bytes_of_text

_CHUNK_BYTES = 256 << 10
_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
_MOST_RECORD_BYTES = 64 << 20
"""Limit of a line: brokers accept far less."""
_CHECKED_EVERY = 1_000
"""Number of records sent between two checks for delivery errors."""


_HELP: Final = """Write records to TOPIC, or its partition N, from FILEs or from the lines of standard input.

\b
odradek produce flights -K : < flights.txt          lines KEY:VALUE
odradek produce pictures -k cat cat.png             a file as one record
odradek consume a --json -e | odradek produce b --json
"""


@click.command(name="produce", help=_HELP)
@click.argument("topic", type=TOPICS, metavar="TOPIC[:N]", shell_complete=complete_topics)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False))
@click.option("--key", "-k", metavar="KEY", help="The key of every record.")
@click.option("--key-delimiter", "-K", metavar="TEXT", help="Lines are keys and values with this text in between.")
@click.option("--delimiter", "-D", metavar="TEXT", help=r"The end of a record.  [default: \n]")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record; may be repeated."
)
@click.option("--partition", "-p", type=ID, help="The partition of every record.")
@click.option("--partitioner", metavar="NAME", help="classic, sticky, adaptive, legacy, …, or an import path.")
@click.option("--compression", "-z", type=click.Choice(["none", *_CODECS]), help="The compression of batches.")
@click.option("--acks", type=click.Choice(["0", "1", "all", "-1"]), help="The acknowledgements to wait for.")
@click.option("--lines", "-l", is_flag=True, help="Each line of a FILE is a record, not each FILE.")
@click.option("--null", "-Z", is_flag=True, help="An empty key or value is null.")
@click.option("--json", "as_json", is_flag=True, help="Lines are records as `consume --json` prints them.")
@click.option("--key-format", type=click.Choice(WRITTEN_FORMATS), default="text", help="How keys are written.")
@click.option(
    "--value-format",
    type=click.Choice(WRITTEN_FORMATS),
    default="text",
    help="How values are written; with --json, those without value_encoding.",
)
@click.option("--keep-partitions", is_flag=True, help="With --json: keep the partitions of the records.")
@click.option(
    "--property", "-X", "properties", multiple=True, metavar="KEY=VALUE", help="One of Kafka's producer keys."
)
@cluster_options
def command(
    *,
    topic: str,
    files: Sequence[str],
    key: str | None,
    key_delimiter: str | None,
    delimiter: str | None,
    headers: Sequence[str],
    partition: int | None,
    partitioner: str | None,
    compression: str | None,
    acks: str | None,
    lines: bool,
    null: bool,
    as_json: bool,
    key_format: str,
    value_format: str,
    keep_partitions: bool,
    properties: Sequence[str],
) -> None:
    """Write records. `_HELP` is the help text."""
    topic, partition = _topic_and_partition(topic, partition)
    check_together(
        ("--key", key, "--key-delimiter", key_delimiter),
        ("--json", as_json, "--key-delimiter", key_delimiter),
        ("--json", as_json, "--delimiter", delimiter),
        ("--json", as_json, "--null", null),
        ("--partition", partition, "--keep-partitions", keep_partitions),
    )
    if keep_partitions and not as_json:
        raise click.UsageError("--keep-partitions needs --json: other records have no partition")
    if lines and not files:
        raise click.UsageError("--lines is for FILEs: standard input is read by lines anyway")
    if delimiter is not None and files and not lines:
        raise click.UsageError("--delimiter needs --lines: without it each FILE is one record")
    settings = client_settings(ProducerSettings, properties)
    settings |= {"compression_type": compression} if compression else {}
    settings |= {"acks": acks} if acks else {}
    settings |= {"partitioner_class": partitioner} if partitioner else {}
    parse = _parser(
        key=key,
        key_delimiter=unescape(key_delimiter) if key_delimiter is not None else None,
        headers=tuple((name, value.encode()) for name, value in map(key_and_value, headers)),
        partition=partition,
        null=null,
        as_json=as_json,
        keep_partitions=keep_partitions,
        formats=(key_format, value_format),
    )
    end = b"\n" if delimiter is None else unescape(delimiter)
    if not end or key_delimiter == "":
        raise click.UsageError("a delimiter can't be empty")
    run(_produce(topic, settings, parse, _records(files, end, lines=lines or as_json)))


def _topic_and_partition(text: str, partition: int | None) -> tuple[str, int | None]:
    topic, numbers = topic_and_partitions(text)
    if numbers is None:
        return topic, partition
    if partition is not None or len(numbers) != 1:
        raise click.UsageError(f"{text!r} and --partition: name one partition, once")
    return topic, numbers[0]


async def _produce(
    topic: str, settings: dict[str, object], parse: Callable[[bytes], NewRecord], records: AsyncIterator[bytes]
) -> None:
    """Send all records. Raises the first delivery error."""
    pending: deque[asyncio.Future[RecordMetadata]] = deque()
    sent = delivered = 0
    try:
        async with Producer(**settings) as producer:  # type: ignore[arg-type]
            with progress(f"producing to {topic}", None, unit="records", wanted=not sys.stdin.isatty()) as advance:
                async for raw in records:
                    record = parse(raw)
                    pending.append(
                        await producer.send(
                            topic,
                            record.value,
                            record.key,
                            partition=record.partition,
                            timestamp_ms=record.timestamp_ms,
                            headers=record.headers,
                        )
                    )
                    sent += 1
                    if sent % _CHECKED_EVERY == 0:
                        delivered += (taken := _take_delivered(pending))
                        advance(taken)
                await producer.flush()
                advance(_take_delivered(pending))
    except asyncio.CancelledError:
        delivered += sum(each.done() and not each.cancelled() and each.exception() is None for each in pending)
        say(f"odradek: {delivered:,} records were acknowledged, {sent - delivered:,} were not", is_remark=True)
        raise


def _take_delivered(pending: deque[asyncio.Future[RecordMetadata]]) -> int:
    """Remove delivered records from `pending` and return their number. Raises the first delivery error."""
    count = 0
    while pending and pending[0].done():
        pending.popleft().result()
        count += 1
    return count


def _parser(
    *,
    key: str | None,
    key_delimiter: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int | None,
    null: bool,
    as_json: bool,
    keep_partitions: bool,
    formats: tuple[str, str],
) -> Callable[[bytes], NewRecord]:
    """Return the function that turns a line, or a file's contents, into a record."""
    fixed_key = key.encode() if key is not None else None

    def of_json(line: bytes) -> NewRecord:
        try:
            record = record_of_json(line, *formats)
        except ValueError as error:
            raise OdradekError(
                f"a line is not a record in JSON: {line[:60].decode(errors='replace')!r}: {error}"
            ) from None
        return record._replace(
            key=record.key if fixed_key is None else fixed_key,
            headers=record.headers + headers,
            partition=record.partition if keep_partitions and partition is None else partition,
        )

    def of_line(line: bytes) -> NewRecord:
        value: bytes | None = line
        found: bytes | None = fixed_key
        if key_delimiter is not None and key_delimiter in line:
            found, _, value = line.partition(key_delimiter)
        if null:
            found, value = found or None, value or None
        if formats != ("text", "text"):
            found, value = _converted("key", formats[0], found), _converted("value", formats[1], value)
        return NewRecord(value=value, key=found, headers=headers, partition=partition)

    return of_json if as_json else of_line


def _converted(what: str, name: str, data: bytes | None) -> bytes | None:
    if data is None:
        return None
    try:
        return bytes_of_text(name, data)
    except (ValueError, RecursionError) as error:
        raise OdradekError(f"a {what} is not {name}: {data[:60].decode(errors='replace')!r}: {error}") from None


async def _records(files: Sequence[str], end: bytes, *, lines: bool) -> AsyncIterator[bytes]:
    """Yield the records of files or, if there are none, of standard input."""
    if files and not lines:
        for path in files:
            yield Path(path).read_bytes()  # noqa: ASYNC240 - a regular file, which no loop can wait for
        return
    rest = b""
    async for chunk in _chunks_of_files(files) if files else chunks_of_stdin(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(end)
        for record in whole:
            yield record
        if len(rest) > _MOST_RECORD_BYTES:
            raise OdradekError(
                f"{_MOST_RECORD_BYTES >> 20} MiB without a delimiter are not a record: choose another --delimiter"
            )
    if rest:
        yield rest


async def _chunks_of_files(files: Sequence[str]) -> AsyncIterator[bytes]:
    for path in files:
        with open(path, "rb") as file:  # noqa: ASYNC230 - a regular file, which no loop can wait for
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
