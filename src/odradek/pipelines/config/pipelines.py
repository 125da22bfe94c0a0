"""A pipeline as values. Locations are local paths, or URLs that Spark's file systems understand."""

from collections.abc import Mapping
from typing import Final

from odradek.model.values import dataclass

VIEW_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of a view beside the fields of the values."""


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
    checkpoint: str
    source: Source
    trigger: Trigger
    restart: Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPipeline(Pipeline):
    """A query over streams: `real_time` and `offline`."""

    kind: str
    streams: tuple[Stream, ...]
    sql: str
    sink: Sink
    dead_letters: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPipeline(Pipeline):
    """A copy of topics to another cluster."""

    topics: Topics
    target: Target
    kind: str = "mirror"


AnyPipeline = QueryPipeline | MirrorPipeline
