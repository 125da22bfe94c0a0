"""Parses a pipeline's TOML file, and checks how its keys go together. docs/spark.md lists every key."""

import json
import posixpath
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from odradek.config.toml import TomlKeyError, converted, place_of
from odradek.model import ConfigurationError, OdradekError
from odradek.pipelines.config.pipelines import (
    DIRECTORY_FORMATS,
    FILE_FORMATS,
    TABLE_FORMAT,
    AnyPipeline,
    LocalPath,
    Location,
    MirrorPipeline,
    QueryPipeline,
    Settings,
    Source,
    Stream,
    Topics,
    exactly_once_options,
    is_url,
)
from odradek.spark.topic_pattern import topic_matcher

_QUERIES: Final = ("real_time", "offline")
_CONTINUOUS: Final = ("real_time", "mirror")
_ENCODED: Final = ("avro", "protobuf")
_EXCLUSIVE: Final[tuple[tuple[str, str, tuple[str | bool, ...]], ...]] = (
    ("guarantee", "kind", _CONTINUOUS),
    ("trigger", "kind", _CONTINUOUS),
    ("trigger.interval", "trigger.available_now", (False,)),
    ("source.topics", "kind", ("mirror",)),
    ("source.pattern", "kind", ("mirror",)),
    ("source.consume_mode", "kind", _QUERIES),
    ("source.min_partitions", "kind", _QUERIES),
    ("source.since", "kind", ("offline",)),
    ("source.until", "kind", ("offline",)),
    ("source.since", "source.consume_mode", ("direct",)),
    ("source.until", "source.consume_mode", ("direct",)),
    ("streams.NAME.event_time", "kind", ("real_time",)),
    ("streams.NAME.watermark", "kind", ("real_time",)),
    ("streams.NAME.value", "streams.NAME.format", ("json",)),
    ("streams.NAME.schema", "streams.NAME.format", _ENCODED),
    ("streams.NAME.message", "streams.NAME.format", ("protobuf",)),
    ("streams.NAME.framing", "streams.NAME.format", _ENCODED),
    ("sink.output_mode", "kind", ("real_time",)),
    ("sink.path", "sink.format", (*DIRECTORY_FORMATS, TABLE_FORMAT)),
    ("sink.partition_by", "sink.format", (*DIRECTORY_FORMATS, TABLE_FORMAT)),
    ("sink.table", "sink.format", ("iceberg", TABLE_FORMAT)),
    ("sink.keep_snapshots", "sink.format", (TABLE_FORMAT,)),
    ("sink.mode", "sink.format", (TABLE_FORMAT,)),
    ("sink.key", "sink.mode", ("upsert",)),
    ("sink.tombstone", "sink.mode", ("upsert",)),
    ("sink.function", "sink.format", ("foreach_batch",)),
    ("sink.bootstrap_servers", "sink.format", ("odradek",)),
    ("sink.topic", "sink.format", ("odradek",)),
    ("sink.target_file_bytes", "sink.format", ("parquet",)),
    ("sink.target_file_bytes", "kind", ("offline",)),
    ("dead_letters", "on_bad_row", ("dead_letter",)),
    ("dead_letter_topic", "on_bad_row", ("dead_letter",)),
    ("dead_letter_topic", "guarantee", ("at_least_once",)),
    ("groups", "guarantee", ("at_least_once",)),
)
"""Keys, each with another key and the values of that one which it is for."""
_REQUIRED: Final = frozenset({
    "streams.NAME.schema", "streams.NAME.message", "sink.path", "sink.table", "sink.function", "sink.bootstrap_servers",
    "sink.key",
})  # fmt: skip
"""Keys of `_EXCLUSIVE` that are required with those values; of `path` and `table`, `TABLE_FORMAT` needs one."""


class PipelineFile(Struct, frozen=True, kw_only=True):
    """A pipeline with the text that it was read from."""

    path: Path
    text: str
    pipeline: AnyPipeline

    def place(self, error: OdradekError) -> str:
        """Return `FILE:LINE` of the key that an error is about, or `FILE` if there is none."""
        return place_of(self.path, self.text, error)


def load_pipeline(path: Path) -> AnyPipeline:
    """Return a file's pipeline. Raise `ConfigurationError`, which begins with the file and, if known, the line."""
    return load_file(path).pipeline


def load_file(path: Path) -> PipelineFile:
    """Return a file's pipeline and text. Raise `ConfigurationError`, which begins with FILE or FILE:LINE."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        pipeline = parse_pipeline(tomllib.loads(text), directory=path.parent, default_name=path.stem)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not TOML: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{place_of(path, text, error)}: {error}") from None
    return PipelineFile(path=path, text=text, pipeline=pipeline)


def toml_files(path: Path) -> list[Path]:
    """Return a file, or the sorted `*.toml` files of a directory. Raise `ConfigurationError` if it has none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.toml"))
    if not found:
        raise ConfigurationError(f"{path}: there is no *.toml file in this directory")
    return found


def parse_pipeline(values: Mapping[str, Any], *, directory: Path, default_name: str) -> AnyPipeline:
    """Return the pipeline of the parsed TOML. Raise `ConfigurationError`, which names the key."""

    def custom(kind: Any, value: Any) -> Any:
        if kind is Path:
            return value
        try:
            parsed = kind.parse(value)
        except OdradekError as error:
            raise ValueError(str(error).removeprefix("subscribePattern ")) from None
        is_relative = kind is LocalPath or (kind is Location and not is_url(parsed))
        return kind(directory.absolute() / parsed) if is_relative else parsed

    first = converted(values, _First, custom=custom)
    name = values.get("name", default_name)
    given = {**values, "name": name, "group": values.get("group", name)}
    if first.kind == "offline":
        given["trigger"] = {"available_now": True}
    if first.kind == "mirror":
        pipeline: AnyPipeline = converted(given, MirrorPipeline, custom=custom)
    else:
        given["DIRECTORY"] = directory
        given["streams"] = [
            converted({**table, "NAME": view}, Stream, custom=custom, key=f"streams.{view}")
            for view, table in first.streams.items()
        ]
        given.setdefault("dead_letters", f"{values.get('checkpoint')}.dead_letters")
        pipeline = converted(given, QueryPipeline, custom=custom)
    _check_places(values, pipeline)
    checks = _mirror_problems(pipeline) if isinstance(pipeline, MirrorPipeline) else _query_problems(values, pipeline)
    for key, problem in checks:
        raise TomlKeyError(key, f"{key} {problem}")
    return _completed(pipeline)


class _First(Struct):
    """The keys that decide what the others are."""

    kind: Literal["real_time", "offline", "mirror"]
    streams: dict[str, dict[str, Any]] = {}


def _completed(pipeline: AnyPipeline) -> AnyPipeline:
    """Return the pipeline with what follows from its keys."""
    if isinstance(pipeline, QueryPipeline):
        if pipeline.sql is None and pipeline.function is None:
            pipeline = replace(pipeline, sql=f"SELECT * FROM {pipeline.streams[0].name}")
        elif pipeline.sql is not None:
            pipeline = replace(pipeline, sql=pipeline.sql.rstrip(";"))
        if pipeline.sink.format != "parquet" or pipeline.kind != "offline":
            pipeline = replace(pipeline, sink=replace(pipeline.sink, target_file_bytes=0))
        configs = Settings({"retention.ms": "-1"} | pipeline.dead_letter_configs)
        pipeline = replace(pipeline, dead_letter_configs=configs)
        if pipeline.sink.format == TABLE_FORMAT:
            options = Settings({"pipeline": pipeline.name} | pipeline.sink.given_options)
            pipeline = replace(pipeline, sink=replace(pipeline.sink, given_options=options))
    if not pipeline.is_exactly_once:
        return pipeline
    # As Kafka Streams does: a record of an aborted transaction is none.
    kafka = Settings({"isolation.level": "read_committed"} | pipeline.source.kafka)
    if isinstance(pipeline, QueryPipeline) and pipeline.sink.format == "odradek":
        options = Settings(exactly_once_options(pipeline.name) | pipeline.sink.given_options)
        pipeline = replace(pipeline, sink=replace(pipeline.sink, given_options=options))
    return replace(pipeline, source=replace(pipeline.source, kafka=kafka))


def _check_places(values: Mapping[str, Any], pipeline: AnyPipeline) -> None:
    """Raise `TomlKeyError` for a key that is not for this kind or format, and for one that is required with it."""
    views = [stream.name for stream in pipeline.streams] if isinstance(pipeline, QueryPipeline) else []
    for pattern, condition, allowed in _EXCLUSIVE:
        for view in views if ".NAME." in pattern else [""]:
            key, other = pattern.replace("NAME", view), condition.replace("NAME", view)
            actual, is_given = _value(pipeline, other), _is_given(values, key)
            if is_given and actual not in allowed:
                raise TomlKeyError(key, f"{key} is for {other} = {' or '.join(map(json.dumps, allowed))}")
            if not is_given and pattern in _REQUIRED and actual in allowed and actual != TABLE_FORMAT:
                raise TomlKeyError(key, f"{key} is missing")


def _is_given(values: Mapping[str, Any], key: str) -> bool:
    table, _, inner = key.partition(".")
    return table in values and (not inner or _is_given(values[table], inner))


def _value(pipeline: AnyPipeline, key: str) -> object:
    value: Any = pipeline
    for part in key.split("."):
        value = {each.name: each for each in value}[part] if isinstance(value, tuple) else getattr(value, part, None)
    return value


def _source_problems(values: Mapping[str, Any], source: Source) -> Iterator[tuple[str, str]]:
    if source.since_ms is not None and _is_given(values, "source.starting_offsets"):
        yield "source.since", "and starting_offsets exclude each other"
    if source.since_ms is not None and source.until_ms is not None and source.since_ms >= source.until_ms:
        yield "source.until", "is not later than since"


def _topic_problems(key: str, topics: Topics) -> Iterator[tuple[str, str]]:
    if bool(topics.topics) == bool(topics.pattern):
        yield f"{key}.topics", "or pattern is required: give exactly one of them"


def _mirror_problems(pipeline: MirrorPipeline) -> Iterator[tuple[str, str]]:
    """Yield keys that do not go together, each with the rest of a sentence that begins with its name."""
    yield from _topic_problems("source", pipeline.source)
    same_cluster = pipeline.source.bootstrap_servers == pipeline.target.bootstrap_servers
    if same_cluster and not pipeline.target.topic_prefix:
        # A mirror that writes to the topic it reads never ends.
        yield "target", "is the source's cluster: give target.topic_prefix"
    if pipeline.groups and is_url(pipeline.checkpoint):
        yield "groups", "needs a checkpoint in a local directory, where it keeps the offsets of both sides"
    if pipeline.groups and same_cluster:
        yield "groups", "is for another cluster: here both sides have the same groups"


def _query_problems(values: Mapping[str, Any], pipeline: QueryPipeline) -> Iterator[tuple[str, str]]:
    """Yield keys that do not go together, each with the rest of a sentence that begins with its name."""
    streams, sink = pipeline.streams, pipeline.sink
    if not streams:
        yield "streams", "is missing: a table [streams.NAME] for every stream"
    for stream in streams:
        yield from _topic_problems(f"streams.{stream.name}", stream)
    yield from _source_problems(values, pipeline.source)
    if pipeline.sql is not None and pipeline.function is not None:
        yield "function", "and sql exclude each other"
    if pipeline.sql is None and pipeline.function is None and (pipeline.kind != "offline" or len(streams) > 1):
        yield "sql", "is missing"
    yield from _dead_letter_problems(values, pipeline)
    if sink.format in (*FILE_FORMATS, TABLE_FORMAT) and sink.output_mode != "append":
        yield "sink.output_mode", f"is append for files and tables, not {sink.output_mode}"
    if sink.format == TABLE_FORMAT and (sink.path is None) == (sink.table is None):
        yield "sink.path", "or sink.table is required: give a directory, or a name in a catalog"
    if sink.format in ("odradek", "console") and pipeline.kind == "offline":
        yield "sink.format", f'is {sink.format} for kind = "real_time" only'
    if pipeline.is_exactly_once:
        if sink.format in ("foreach_batch", "console"):
            yield "guarantee", f"is at_least_once with the sink {sink.format}, which repeats batches"
        if "guarantee" in sink.given_options:
            yield "guarantee", "and sink.options.guarantee exclude each other"
    yield from _end_problems(pipeline)
    yield from _group_problems(pipeline)


def _dead_letter_problems(values: Mapping[str, Any], pipeline: QueryPipeline) -> Iterator[tuple[str, str]]:
    topic, directory = pipeline.dead_letter_topic, pipeline.dead_letters
    if topic is not None:
        if any(_reads(stream, topic) for stream in pipeline.streams):
            yield "dead_letter_topic", f"is {topic}, which the pipeline reads"
        if "dead_letters" in values:
            yield "dead_letter_topic", "and dead_letters exclude each other"
        return
    for key in ("dead_letter_replication_factor", "dead_letter_configs"):
        if key in values:
            yield key, "is for dead_letter_topic"
    has_values = any(stream.has_fields for stream in pipeline.streams)
    if is_url(directory) and pipeline.on_bad_row == "dead_letter" and has_values:
        problem = f"is the URL {directory}: give a directory that all workers see, or dead_letter_topic"
        yield "dead_letters", problem


def _end_problems(pipeline: QueryPipeline) -> Iterator[tuple[str, str]]:
    """Yield problems of a pipeline that would read its own results, or write them among its own files."""
    sink = pipeline.sink
    if sink.path is not None:
        for key, place in (("checkpoint", pipeline.checkpoint), ("dead_letters", pipeline.dead_letters)):
            if posixpath.normpath(sink.path) == posixpath.normpath(place):
                yield "sink.path", f"is the directory of {key}, {place}: give another one"
    if sink.topic is not None and sink.bootstrap_servers == pipeline.source.bootstrap_servers:
        for stream in pipeline.streams:
            if _reads(stream, sink.topic):
                # Such a query reads its own results, and never ends.
                yield "sink.topic", f"is {sink.topic}, which streams.{stream.name} reads"


def _group_problems(pipeline: QueryPipeline) -> Iterator[tuple[str, str]]:
    """Yield problems of a member of a group that keeps state: a partition that moves leaves its state behind."""
    if pipeline.source.consume_mode != "group":
        return
    mode = 'source.consume_mode = "group"'
    if pipeline.is_exactly_once:
        yield "guarantee", f"is at_least_once with {mode}"
    if len(pipeline.streams) > 1:
        yield (
            "source.consume_mode",
            "is direct with several streams: both sides of a join may move apart",
        )
    for stream in pipeline.streams:
        if stream.watermark is not None:
            key = f"streams.{stream.name}.watermark"
            yield key, f"is for state, which does not move with a partition: leave out {mode}"
    if pipeline.sink.output_mode != "append":
        yield "sink.output_mode", f"is append with {mode}, not {pipeline.sink.output_mode}: state does not move"


def _reads(stream: Stream, topic: str) -> bool:
    return topic_matcher(stream.pattern)(topic) if stream.pattern else topic in stream.topics
