"""Value classes for a pipeline's keys. Locations are local paths, or URLs of Spark's file systems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

FILE_FORMATS: Final = ("parquet", "json", "csv")
"""Formats of the file sinks, whose commit log Spark writes."""
DIRECTORY_FORMATS: Final = (*FILE_FORMATS, "delta")
"""Formats of the sinks whose `path` is a directory."""


def is_url(location: str) -> bool:
    """Return whether a location is a URL of Spark's file systems (`hdfs://…`, `s3a://…`), not a local path."""
    return "://" in location


class Topics(Struct, frozen=True, kw_only=True):
    """Topics given by `names`, or by a `pattern` of whole names; the other one is empty."""

    names: tuple[str, ...]
    pattern: str


class BadRowLimit(Struct, frozen=True, kw_only=True):
    """How many bad rows a run of a pipeline may have, or which share of its records; the other one is None."""

    rows: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        return str(self.rows) if self.share is None else f"{self.share * 100:g}%"


class Source(Struct, frozen=True, kw_only=True):
    """The cluster to read, and the options of the read."""

    bootstrap_servers: str
    starting_offsets: str
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    kafka: Mapping[str, str]
    group: str | None = None
    """The consumer group that the query is a member of (`consume_mode = "group"`); None if it reads directly."""
    since_ms: int | None = None
    until_ms: int | None = None
    """The record timestamps that an offline pipeline reads, `until_ms` excluded; None means no limit."""


def exactly_once_options(name: str) -> dict[str, str]:
    """Return the options of the sink `odradek` for a pipeline of this name with `guarantee = "exactly_once"`."""
    # The group of the name has the pipeline's progress: the sink's decisions need another one.
    return {"guarantee": "exactly_once", "transactionalIdPrefix": f"{name}-sink"}


class Trigger(Struct, frozen=True, kw_only=True):
    """When batches begin: every `interval` (Spark's notation), or only for the present records (`available_now`)."""

    interval: str
    available_now: bool


class Restart(Struct, frozen=True, kw_only=True):
    """When a failed pipeline restarts: after `backoff_s`, doubled each time up to `max_backoff_s`.

    `limit` is the most restarts in a row without a committed batch; 0 means no restart, -1 no limit.
    """

    limit: int
    backoff_s: float
    max_backoff_s: float


class Stream(Struct, frozen=True, kw_only=True):
    """A SQL view over topics."""

    name: str
    topics: Topics
    value: str | None
    headers: bool
    event_time: str
    watermark: str | None
    key: str = "text"
    """The type of the column `key`: `text` or `binary`."""
    format: str = "json"
    """How values are encoded: `json`, `avro` or `protobuf`."""
    schema: str | None = None
    """The schema file of `avro`, or the descriptor file (of `protoc`) of `protobuf`."""
    message: str | None = None
    """The full name of the `protobuf` message."""
    framing: str | None = None
    """The prefix of each value of `avro` and `protobuf`: `confluent`, or None."""

    @property
    def has_fields(self) -> bool:
        """Whether values are parsed into columns; otherwise a column `value` has the text."""
        return self.value is not None or self.schema is not None


class Sink(Struct, frozen=True, kw_only=True):
    """Where results are written. `options` includes the path or cluster, under the format's own keys."""

    format: str
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    function: str | None = None
    """`MODULE:NAME` of the function of `foreach_batch`."""
    target_file_bytes: int = 0
    """The size up to which small files of an offline pipeline are merged; 0 means no merging."""


class Target(Struct, frozen=True, kw_only=True):
    """The cluster that a mirror writes to."""

    bootstrap_servers: str
    topic_prefix: str
    replication_factor: int | None
    kafka: Mapping[str, str]


class Pipeline(Struct, frozen=True, kw_only=True):
    """The keys that all kinds of pipelines have."""

    name: str
    group: str
    checkpoint: str
    source: Source
    trigger: Trigger
    restart: Restart


class QueryPipeline(Pipeline, frozen=True, kw_only=True):
    """A query over streams: `real_time` and `offline`."""

    kind: str
    directory: Path
    """The directory of the file; functions may be imported from it."""
    streams: tuple[Stream, ...]
    sql: str | None
    function: str | None
    """`MODULE:NAME` of a function instead of `sql`."""
    sink: Sink
    on_bad_row: str
    max_bad_rows: BadRowLimit
    dead_letters: str
    dead_letter_topic: str | None
    dead_letter_replication_factor: int | None
    """Of the topic, if the pipeline creates it; None means three replicas, or as many as there are brokers."""
    dead_letter_configs: Mapping[str, str]
    """Configurations of the topic, if the pipeline creates it."""

    @property
    def query_key(self) -> str:
        """The key that has the query: `sql` or `function`."""
        return "sql" if self.sql is not None else "function"


class MirrorPipeline(Pipeline, frozen=True, kw_only=True):
    """A copy of topics to another cluster."""

    topics: Topics
    target: Target
    groups: tuple[str, ...]
    """Patterns of the groups whose committed offsets are copied."""
    is_exactly_once: bool = False
    kind: str = "mirror"


AnyPipeline = QueryPipeline | MirrorPipeline
