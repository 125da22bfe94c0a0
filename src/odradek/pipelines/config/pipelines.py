"""A pipeline as values. Locations are local paths, or URLs that Spark's file systems understand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.model.values import dataclass

FILE_FORMATS: Final = ("parquet", "json", "csv")
"""Sinks whose commit log is Spark's own."""


def is_url(location: str) -> bool:
    """Return whether a location is on a file system of Spark's (`hdfs://…`, `s3a://…`) rather than a local path."""
    return "://" in location


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
    since_ms: int | None = None
    until_ms: int | None = None
    """The range of record timestamps that an offline pipeline reads, the end excluded; None: without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """When the next batch begins. `interval` is a duration in Spark's notation."""

    interval: str
    available_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """When a pipeline that failed starts again: after `backoff_s`, doubled each time up to `max_backoff_s`.

    `limit` counts restarts without a committed batch between them.
    """

    limit: int
    backoff_s: float
    max_backoff_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A view over topics."""

    name: str
    topics: Topics
    value: str | None
    headers: bool
    event_time: str
    watermark: str | None
    format: str = "json"
    """How values are encoded: `json`, `avro` or `protobuf`."""
    schema: str | None = None
    """The file with the fields of `avro` (a schema) or `protobuf` (descriptors of `protoc`)."""
    message: str | None = None
    """The full name of the message of `protobuf`."""
    framing: str | None = None
    """The prefix of each value of `avro` and `protobuf`: `confluent`, or None."""

    @property
    def has_fields(self) -> bool:
        """Whether values are parsed into columns; otherwise there is a column `value` with the text."""
        return self.value is not None or self.schema is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where results are written: `options` includes the path or the cluster under the format's own keys."""

    format: str
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    function: str | None = None
    """`MODULE:NAME` of the function of `foreach_batch`."""
    target_file_bytes: int = 0
    """The size up to which small files of an offline pipeline are merged; 0: they stay."""


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
    checkpoint: str
    source: Source
    trigger: Trigger
    restart: Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline(Pipeline):
    """A query over streams: `real_time` and `offline`."""

    kind: str
    directory: Path
    """Where the file is: functions are imported from there, too."""
    streams: tuple[Stream, ...]
    sql: str | None
    function: str | None
    """`MODULE:NAME` of the function that takes the place of `sql`."""
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
    """Patterns of the groups whose committed offsets are carried."""
    kind: str = "mirror"


AnyPipeline = QueryPipeline | MirrorPipeline
