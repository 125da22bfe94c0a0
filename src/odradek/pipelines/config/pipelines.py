"""Value classes for a pipeline's keys. Locations are local paths, or URLs of Spark's file systems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.model.values import dataclass

FILE_FORMATS: Final = ("parquet", "json", "csv")
"""Formats of the file sinks, whose commit log Spark writes."""


def is_url(location: str) -> bool:
    """Return whether a location is a URL of Spark's file systems (`hdfs://…`, `s3a://…`), not a local path."""
    return "://" in location


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Topics given by `names`, or by a `pattern` of whole names; the other one is empty."""

    names: tuple[str, ...]
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The cluster to read, and the options of the read."""

    bootstrap_servers: str
    starting_offsets: str
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    kafka: Mapping[str, str]
    since_ms: int | None = None
    until_ms: int | None = None
    """The record timestamps that an offline pipeline reads, `until_ms` excluded; None means no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When batches begin: every `interval` (Spark's notation), or only for the present records (`available_now`)."""

    interval: str
    available_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """When a failed pipeline restarts: after `backoff_s`, doubled each time up to `max_backoff_s`.

    `limit` is the most restarts in a row without a committed batch; 0 means no restart.
    """

    limit: int
    backoff_s: float
    max_backoff_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A SQL view over topics."""

    name: str
    topics: Topics
    value: str | None
    headers: bool
    event_time: str
    watermark: str | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where results are written. `options` includes the path or cluster, under the format's own keys."""

    format: str
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    function: str | None = None
    """`MODULE:NAME` of the function of `foreach_batch`."""
    target_file_bytes: int = 0
    """The size up to which small files of an offline pipeline are merged; 0 means no merging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that a mirror writes to."""

    bootstrap_servers: str
    topic_prefix: str
    replication_factor: int | None
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The keys that all kinds of pipelines have."""

    name: str
    group: str
    checkpoint: str
    source: Source
    trigger: Trigger
    restart: Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline(Pipeline):
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
    dead_letters: str
    dead_letter_topic: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPipeline(Pipeline):
    """A copy of topics to another cluster."""

    topics: Topics
    target: Target
    groups: tuple[str, ...]
    """Patterns of the groups whose committed offsets are copied."""
    kind: str = "mirror"


AnyPipeline = QueryPipeline | MirrorPipeline
