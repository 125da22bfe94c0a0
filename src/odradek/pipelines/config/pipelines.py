"""The keys of a pipeline's file as value classes. Locations are local paths, or URLs of Spark's file systems."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import re2
from msgspec import Meta, Struct, field

from odradek.config.secrets import ClientOptions, resolved
from odradek.config.toml import Text
from odradek.model import bootstrap_addresses, validate_topic_name
from odradek.spark.topic_pattern import topic_matcher

FILE_FORMATS: Final = ("parquet", "json", "csv")
"""Formats of the file sinks, whose commit log Spark writes."""
DIRECTORY_FORMATS: Final = (*FILE_FORMATS, "delta")
"""Formats of the sinks whose `path` is a directory."""
TABLE_FORMAT: Final = "odradek_iceberg"
"""The format of the sink that writes Iceberg tables without a JAR: a `path`, or a `table` in a catalog."""
_SECONDS: Final = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}

Positive = Annotated[int, Meta(ge=1)]


def is_url(location: str) -> bool:
    """Return whether a location is a URL of Spark's file systems (`hdfs://…`, `s3a://…`), not a local path."""
    return "://" in location


class Location(Text):
    """A URL, or a path that is relative to the file."""


class LocalPath(Text):
    """A path that is relative to the file."""


class ViewName(Text):
    """The name of a stream, which SQL uses."""

    form = "[A-Za-z_][A-Za-z0-9_]*"
    kind = "a name for a view: letters, digits and _"


class Function(Text):
    """A Python function."""

    form = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
    kind = "MODULE:NAME of a Python function"


class Interval(Text):
    """A duration in Spark's notation."""

    form = r"\d+(\.\d+)?\s+[a-zA-Z]+(\s+\d+\s+[a-zA-Z]+)*"
    kind = "a duration such as '10 seconds'"


class _OneUnit(Interval):
    form = r"\d+(\.\d+)? *(millisecond|second|minute|hour)s?"


class Seconds(float):
    """A duration, which has a unit in the file."""

    @classmethod
    def parse(cls, value: object) -> Self:
        number, unit = re.split(" *(?=[a-z])", _OneUnit.parse(value), maxsplit=1)
        return cls(float(number) * _SECONDS[unit.removesuffix("s")])


class Servers(Text):
    """The addresses of brokers in one form, by which two tables name the same cluster."""

    @classmethod
    def parse(cls, value: object) -> Self:
        return cls(",".join(bootstrap_addresses([super().parse(value)])))


class TopicName(Text):
    """A valid name of a topic."""

    check = staticmethod(validate_topic_name)


class TopicPattern(Text):
    """A regular expression for whole names of topics."""

    check = staticmethod(topic_matcher)


class GroupPattern(Text):
    """A regular expression for whole names of groups."""

    @staticmethod
    def check(pattern: str, /) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(pattern, options=options)
        except re2.error:
            raise ValueError(f"{pattern!r} is not a regular expression") from None


class _LimitText(Text):
    form = r"\d+|(\d{1,2}(\.\d+)?|100(\.0+)?)%"
    kind = "a number of rows, such as '20', or a share up to '100%'"


class BadRowLimit(str):
    """How many bad rows a run of a pipeline may have, or which share of its records."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        return cls(_LimitText.parse(value))

    @property
    def rows(self) -> int | None:
        return None if self.endswith("%") else int(self)

    @property
    def share(self) -> float | None:
        return float(self[:-1]) / 100 if self.endswith("%") else None


class Configs(ClientOptions):
    """A table of Kafka's keys. Numbers and booleans become texts."""

    @classmethod
    def parse(cls, value: object) -> Self:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a table, got {value!r}")
        for name, item in value.items():
            if not isinstance(item, str | int | float):
                raise TypeError(f"{name!r} is not a text, number or boolean; are its dots in quotes?")
        return cls((name, str(item).lower() if isinstance(item, bool) else str(item)) for name, item in value.items())


class Settings(Configs):
    """A table of keys of clients or of Spark, whose values may refer to secrets."""

    @classmethod
    def parse(cls, value: object) -> Self:
        return cls(resolved(super().parse(value)))


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: its keys are the fields, but those in upper case, which the parser adds."""


class Topics(Table, frozen=True, kw_only=True):
    """Topics given by names, or by a pattern of whole names; the other one is empty."""

    topics: tuple[TopicName, ...] = ()
    pattern: TopicPattern = TopicPattern()


class Source(Topics, frozen=True, kw_only=True):
    """The cluster to read, and the options of the read. Topics are given for a mirror."""

    bootstrap_servers: Servers
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    max_offsets_per_trigger: Positive | None = None
    min_partitions: Positive | None = None
    fail_on_data_loss: bool = True
    consume_mode: Literal["direct", "group"] = "direct"
    kafka: Settings = field(default_factory=Settings)
    since: datetime | None = None
    until: datetime | None = None
    """The record timestamps that an offline pipeline reads, `until` excluded; None means no limit."""

    @property
    def since_ms(self) -> int | None:
        return _milliseconds(self.since)

    @property
    def until_ms(self) -> int | None:
        return _milliseconds(self.until)


def _milliseconds(moment: datetime | None) -> int | None:
    """Return a date with time as milliseconds since the epoch, in UTC if it has no offset."""
    if moment is None:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def exactly_once_options(name: str) -> dict[str, str]:
    """Return the options of the sink `odradek` for a pipeline of this name with `guarantee = "exactly_once"`."""
    # The group of the name has the pipeline's progress: the sink's decisions need another one.
    return {"guarantee": "exactly_once", "transactionalIdPrefix": f"{name}-sink"}


class Trigger(Table, frozen=True, kw_only=True):
    """When batches begin: every `interval` (Spark's notation), or only for the present records (`available_now`)."""

    interval: Interval = Interval("0 seconds")
    available_now: bool = False


class Restart(Table, frozen=True, kw_only=True):
    """When a failed pipeline restarts: after `backoff_s`, doubled each time up to `max_backoff_s`.

    `limit` is the most restarts in a row without a committed batch; 0 means no restart, -1 no limit.
    """

    limit: Annotated[int, Meta(ge=-1)] = 20
    backoff_s: Seconds = field(default=Seconds(1), name="backoff")
    max_backoff_s: Seconds = field(default=Seconds(60), name="max_backoff")


class Stream(Topics, frozen=True, kw_only=True):
    """A SQL view over topics."""

    name: ViewName = field(name="NAME")
    """The last part of the table's name."""
    value: Text | None = None
    headers: bool = False
    event_time: Text = Text("timestamp")
    watermark: Interval | None = None
    key: Literal["text", "binary"] = "text"
    """The type of the column `key`."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """How values are encoded."""
    schema: LocalPath | None = None
    """The schema file of `avro`, or the descriptor file (of `protoc`) of `protobuf`."""
    message: Text | None = None
    """The full name of the `protobuf` message."""
    framing: Literal["confluent"] | None = None
    """The prefix of each value of `avro` and `protobuf`."""

    @property
    def has_fields(self) -> bool:
        """Whether values are parsed into columns; otherwise a column `value` has the text."""
        return self.value is not None or self.schema is not None


class Sink(Table, frozen=True, kw_only=True):
    """Where results are written."""

    format: Literal[
        "parquet", "json", "csv", "delta", "iceberg", "odradek_iceberg", "foreach_batch", "odradek", "console"
    ] = "parquet"
    output_mode: Literal["append", "update", "complete"] = "append"
    path: Location | None = None
    partition_by: tuple[Text, ...] = ()
    table: Text | None = None
    mode: Literal["append", "upsert"] = "append"
    """Of `odradek_iceberg`: whether a row is added, or takes the place of the one with its key."""
    key: tuple[Text, ...] = ()
    tombstone: Text | None = None
    """The column of the query that is true for rows that delete their key."""
    keep_snapshots: Annotated[int, Meta(ge=0)] | None = None
    """The snapshots that `odradek_iceberg` keeps; 0 means all, None the sink's default."""
    function: Function | None = None
    """`MODULE:NAME` of the function of `foreach_batch`."""
    bootstrap_servers: Servers | None = None
    topic: TopicName | None = None
    given_options: Settings = field(default_factory=Settings, name="options")
    target_file_bytes: Annotated[int, Meta(ge=0)] = 128 << 20
    """The size up to which small files of an offline pipeline are merged; 0 means no merging."""

    @property
    def options(self) -> ClientOptions:
        """The options of Spark's writer, with the path or cluster under the format's own keys."""
        keys: dict[str, str | None] = {
            "path": self.path,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "topic": self.topic,
        }
        if self.format == TABLE_FORMAT:
            keep = None if self.keep_snapshots is None else str(self.keep_snapshots)
            keys |= {"table": self.table, "partitionBy": ", ".join(self.partition_by) or None, "keepSnapshots": keep}
            keys |= {"mode": self.mode, "key": ", ".join(self.key) or None, "tombstone": self.tombstone}
        elif self.table is not None:
            keys["path"] = self.table  # Iceberg's JAR takes the name of a table, as a catalog knows it, as the path
        fanout = {"fanout-enabled": "true"} if self.format == "iceberg" else {}
        return ClientOptions(
            fanout | self.given_options | {key: text for key, text in keys.items() if text is not None}
        )


class Target(Table, frozen=True, kw_only=True):
    """The cluster that a mirror writes to."""

    bootstrap_servers: Servers
    topic_prefix: Text = Text()
    replication_factor: Positive | None = None
    kafka: Settings = field(default_factory=Settings)


class Pipeline(Table, frozen=True, kw_only=True):
    """The keys that all kinds of pipelines have."""

    name: Text
    group: Text
    checkpoint: Location
    source: Source
    trigger: Trigger = Trigger()
    restart: Restart = Restart()
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee == "exactly_once"


class QueryPipeline(Pipeline, frozen=True, kw_only=True):
    """A query over streams: `real_time` and `offline`."""

    kind: Literal["real_time", "offline"]
    directory: Path = field(name="DIRECTORY")
    """The directory of the file; functions may be imported from it."""
    streams: tuple[Stream, ...]
    sql: Text | None = None
    function: Function | None = None
    """`MODULE:NAME` of a function instead of `sql`."""
    sink: Sink = Sink()
    on_bad_row: Literal["dead_letter", "fail", "null"] = "dead_letter"
    max_bad_rows: BadRowLimit = BadRowLimit("50%")
    dead_letters: Location
    dead_letter_topic: TopicName | None = None
    dead_letter_replication_factor: Positive | None = None
    """Of the topic, if the pipeline creates it; None means three replicas, or as many as there are brokers."""
    dead_letter_configs: Configs = field(default_factory=Configs)
    """Configurations of the topic, if the pipeline creates it."""

    @property
    def query_key(self) -> str:
        """The key that has the query: `sql` or `function`."""
        return "sql" if self.sql is not None else "function"


class MirrorPipeline(Pipeline, frozen=True, kw_only=True):
    """A copy of topics to another cluster."""

    kind: Literal["mirror"]
    target: Target
    groups: tuple[GroupPattern, ...] = ()
    """Patterns of the groups whose committed offsets are copied."""


AnyPipeline = QueryPipeline | MirrorPipeline
