"""Parses a pipeline's TOML file. `odradek pipeline example KIND` prints one of each.

All kinds
    kind                            real_time, offline or mirror
    name                            default: the file's name
    group                           the consumer group that its progress is committed to; the name by default
    checkpoint                      a directory of its own, for its offsets and state; relative to the file
    [source]
    bootstrap_servers               HOST:PORT of the cluster that it reads
    starting_offsets                earliest (default) or latest: where it begins when there is no checkpoint yet
    max_offsets_per_trigger         how many offsets a batch has at most, per stream
    min_partitions                  how many tasks a batch has at least (not for a mirror: it would lose the order)
    fail_on_data_loss               whether records that were deleted before they were read end it (default)
    kafka                           a table of client keys, such as "isolation.level" = "read_committed"
    [trigger]                       (an offline pipeline always ends with what is there)
    interval                        from one batch's beginning to the next one's: "10 seconds"; no pause by default
    available_now                   true: end with what is there

real_time and offline
    dead_letters                    a directory for records whose values are not JSON objects of the fields below:
                                    Parquet, unchanged, with a reason; default: the checkpoint's path and
                                    ".dead_letters"
    sql                             a query over the streams; offline: all columns of its one stream by default
    [streams.NAME]                  a view of that name: columns key, topic, partition, offset, timestamp, and
    topics or pattern               … the records of these topics, or of those that match whole
    value                           … the fields of their JSON values, as Spark's DDL: "carrier STRING, delay DOUBLE";
                                    without it a column value, the text; a tombstone (a null value) is a row of nulls
    headers                         … a column headers too (default: false)
    watermark                       real_time: how much later than others a record may arrive, such as "1 hour"
    event_time                      the column that the watermark is about; timestamp (the record's) by default
    [sink]
    format                          parquet, json or csv (with path), odradek (with bootstrap_servers, topic), console
    path                            a directory; relative to the file
    partition_by                    a list of columns, a directory for each value
    output_mode                     real_time: append (default), update or complete
    options                         a table of the format's own options

mirror
    source.topics or source.pattern what is mirrored: every key, value, header, timestamp and partition
    [target]
    bootstrap_servers               HOST:PORT of the cluster that it writes
    topic_prefix                    comes before every topic's name; nothing by default
    replication_factor              of topics that it creates; the cluster's default if missing
    kafka                           a table of client keys, such as "compression.type" = "zstd"
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.model import ConfigurationError, validate_topic_name
from odradek.model.values import dataclass
from odradek.pipelines.tables import Table

VIEW_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of a view beside the fields of the values."""

_INTERVAL: Final = re.compile(r"\d+(\.\d+)?\s+[a-zA-Z]+(\s+\d+\s+[a-zA-Z]+)*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILES: Final = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Topics by name, or a pattern for whole names; one of the two is empty."""

    names: tuple[str, ...]
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The cluster to read, and how."""

    bootstrap_servers: str
    starting_offsets: str
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When the next batch begins. `interval` is a duration in Spark's notation."""

    interval: str
    available_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A view over topics."""

    name: str
    topics: Topics
    value: str | None
    headers: bool
    event_time: str
    watermark: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where results are written: `options` includes the path or the cluster under the format's own keys."""

    format: str
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that a mirror writes to."""

    bootstrap_servers: str
    topic_prefix: str
    replication_factor: int | None
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The keys of all kinds."""

    name: str
    group: str
    checkpoint: Path
    source: Source
    trigger: Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline(Pipeline):
    """A query over streams: `real_time` and `offline`."""

    kind: str
    streams: tuple[Stream, ...]
    sql: str
    sink: Sink
    dead_letters: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPipeline(Pipeline):
    """A copy of topics to another cluster."""

    topics: Topics
    target: Target
    kind: str = "mirror"


AnyPipeline = QueryPipeline | MirrorPipeline


def load_pipeline(path: Path) -> AnyPipeline:
    """Return the pipeline of a file. Raise `ConfigurationError`, one line that begins with the file's name."""
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
        return parse_pipeline(values, directory=path.parent, default_name=path.stem)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def parse_pipeline(values: Mapping[str, Any], *, directory: Path, default_name: str) -> AnyPipeline:
    """Return the pipeline of a file's values. Raise `ConfigurationError`, one sentence that names the key."""
    top = Table(values)
    kind = top.choice("kind", ("real_time", "offline", "mirror"))
    name = top.text("name", default_name)
    source_table = top.table("source")
    common: dict[str, Any] = {
        "name": name,
        "group": top.text("group", name),
        "checkpoint": directory / top.text("checkpoint"),
        "trigger": _trigger(top, kind),
        "kind": kind,
    }
    if kind == "mirror":
        common["topics"] = _topics(source_table)
        source, target = _source(source_table, kind), _target(top.table("target"))
        if source.bootstrap_servers == target.bootstrap_servers and not target.topic_prefix:
            # A mirror that writes to the topic it reads never ends.
            raise ConfigurationError("source and target are the same cluster: give target.topic_prefix")
        pipeline: AnyPipeline = MirrorPipeline(**common, source=source, target=target)
    else:
        common["source"] = _source(source_table, kind)
        dead_letters = top.optional_text("dead_letters")
        common["dead_letters"] = (
            Path(f"{common['checkpoint']}.dead_letters") if dead_letters is None else directory / dead_letters
        )
        common["streams"] = streams = _streams(top, kind)
        common["sink"] = _sink(top.table("sink"), kind, directory)
        default_sql = f"SELECT * FROM {streams[0].name}" if kind == "offline" and len(streams) == 1 else None
        pipeline = QueryPipeline(**common, sql=top.text("sql", default_sql).rstrip(";"))
    top.done()
    return pipeline


def _source(table: Table, kind: str) -> Source:
    source = Source(
        bootstrap_servers=table.text("bootstrap_servers"),
        starting_offsets=table.choice("starting_offsets", ("earliest", "latest"), "earliest"),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger", at_least=1),
        min_partitions=None if kind == "mirror" else table.number("min_partitions", at_least=1),
        fail_on_data_loss=table.flag("fail_on_data_loss", default=True),
        kafka=table.mapping("kafka"),
    )
    table.done()
    return source


def _trigger(top: Table, kind: str) -> Trigger:
    if kind == "offline":
        return Trigger(interval="", available_now=True)
    table = top.table("trigger")
    interval = table.text("interval", "0 seconds")
    if not _INTERVAL.fullmatch(interval):
        raise table.error("interval", f"is a duration such as '10 seconds', not {interval!r}")
    available_now = table.flag("available_now", default=False)
    if available_now and table.has("interval"):
        raise table.error("interval", "and available_now exclude each other")
    table.done()
    return Trigger(interval=interval, available_now=available_now)


def _topics(table: Table) -> Topics:
    names, pattern = table.texts("topics"), table.optional_text("pattern") or ""
    if bool(names) == bool(pattern):
        raise table.error("topics", "or pattern says what to read: one of them, not both")
    for name in names:
        validate_topic_name(name)
    return Topics(names=names, pattern=pattern)


def _streams(top: Table, kind: str) -> tuple[Stream, ...]:
    tables = top.table("streams")
    found = []
    for name in tables.keys:
        if not _NAME.fullmatch(name):
            raise tables.error(name, "is not a name for a view: letters, digits and _")
        table = tables.table(name)
        stream = Stream(
            name=name,
            topics=_topics(table),
            value=table.optional_text("value"),
            headers=table.flag("headers", default=False),
            event_time=table.text("event_time", "timestamp") if kind == "real_time" else "timestamp",
            watermark=table.optional_text("watermark") if kind == "real_time" else None,
        )
        if stream.watermark and not _INTERVAL.fullmatch(stream.watermark):
            raise table.error("watermark", f"is a duration such as '1 hour', not {stream.watermark!r}")
        table.done()
        found.append(stream)
    if not found:
        raise top.error("streams", "is missing: a table [streams.NAME] for every stream")
    return tuple(found)


def _sink(table: Table, kind: str, directory: Path) -> Sink:
    formats = _FILES if kind == "offline" else (*_FILES, "odradek", "console")
    sink_format = table.choice("format", formats, "parquet")
    options = table.mapping("options")
    partition_by: tuple[str, ...] = ()
    output_mode = (
        table.choice("output_mode", ("append", "update", "complete"), "append") if kind == "real_time" else "append"
    )
    if sink_format in _FILES:
        options["path"] = str(directory / table.text("path"))
        partition_by = table.texts("partition_by")
        if output_mode != "append":
            raise table.error("output_mode", f"is append for files, not {output_mode}")
    if sink_format == "odradek":
        options["kafka.bootstrap.servers"] = table.text("bootstrap_servers")
        if (topic := table.optional_text("topic")) is not None:
            options["topic"] = validate_topic_name(topic)
    table.done()
    return Sink(format=sink_format, output_mode=output_mode, partition_by=partition_by, options=options)


def _target(table: Table) -> Target:
    target = Target(
        bootstrap_servers=table.text("bootstrap_servers"),
        topic_prefix=table.optional_text("topic_prefix") or "",
        replication_factor=table.number("replication_factor", at_least=1),
        kafka=table.mapping("kafka"),
    )
    table.done()
    return target
