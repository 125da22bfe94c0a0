"""Parses a pipeline's TOML file, and checks its keys. docs/spark.md lists every key."""

import posixpath
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import re2
from msgspec import Struct
from msgspec.structs import replace

from odradek.config.secrets import ClientOptions, resolved
from odradek.config.toml_table import TomlKeyError, TomlTable
from odradek.model import ConfigurationError, OdradekError, bootstrap_addresses, validate_topic_name
from odradek.pipelines.config.pipelines import (
    DIRECTORY_FORMATS,
    FILE_FORMATS,
    AnyPipeline,
    BadRowLimit,
    MirrorPipeline,
    QueryPipeline,
    Restart,
    Sink,
    Source,
    Stream,
    Target,
    Topics,
    Trigger,
    exactly_once_options,
    is_url,
)
from odradek.spark.topic_pattern import topic_matcher

_INTERVAL: Final = re.compile(r"\d+(\.\d+)?\s+[a-zA-Z]+(\s+\d+\s+[a-zA-Z]+)*")
_SECONDS: Final = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"\s*\[+([^\]]+)\]+")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES: Final = ('"""', "'''")


class PipelineFile(Struct, frozen=True, kw_only=True):
    """A pipeline with the text that it was read from."""

    path: Path
    text: str
    pipeline: AnyPipeline

    def place(self, error: OdradekError) -> str:
        """Return `FILE:LINE` of the key that an error is about, or `FILE` if there is none."""
        return _place(self.path, self.text, error)


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
        raise ConfigurationError(f"{_place(path, text, error)}: {error}") from None
    return PipelineFile(path=path, text=text, pipeline=pipeline)


def toml_files(path: Path) -> list[Path]:
    """Return a file, or the sorted `*.toml` files of a directory. Raise `ConfigurationError` if it has none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.toml"))
    if not found:
        raise ConfigurationError(f"{path}: there is no *.toml file in this directory")
    return found


def _place(path: Path, text: str, error: OdradekError) -> str:
    if not isinstance(error, TomlKeyError) or (line := line_of(key_lines(text), error.key)) is None:
        return str(path)
    return f"{path}:{line if error.line is None else line_in_value(text, line, error.line)}"


def parse_pipeline(values: Mapping[str, Any], *, directory: Path, default_name: str) -> AnyPipeline:
    """Return the pipeline of the parsed TOML. Raise `ConfigurationError`, which names the key."""
    top = TomlTable(values)
    kind = top.choice("kind", ("real_time", "offline", "mirror"))
    name = top.text("name", default_name)
    source_table = top.table("source")
    is_exactly_once = kind != "offline" and (
        top.choice("guarantee", ("at_least_once", "exactly_once"), "at_least_once") == "exactly_once"
    )
    common: dict[str, Any] = {
        "name": name,
        "group": top.text("group", name),
        "checkpoint": _location(directory, top.text("checkpoint")),
        "trigger": _trigger(top, kind),
        "restart": _restart(top.table("restart")),
        "kind": kind,
    }
    if kind == "mirror":
        pipeline: AnyPipeline = _mirror(top, source_table, common)
    else:
        pipeline = _query(top, source_table, common, directory)
    top.done()
    return _exactly_once(pipeline) if is_exactly_once else pipeline


def _exactly_once(pipeline: AnyPipeline) -> AnyPipeline:
    """Return the pipeline with `guarantee = "exactly_once"`. Raise `TomlKeyError` if a key excludes that."""
    # As Kafka Streams does: a record of an aborted transaction is none.
    kafka = ClientOptions({"isolation.level": "read_committed", **pipeline.source.kafka})
    source = replace(pipeline.source, kafka=kafka)
    if isinstance(pipeline, MirrorPipeline):
        if pipeline.groups:
            raise TomlKeyError("groups", 'groups needs guarantee = "at_least_once": it counts the target\'s offsets')
        return replace(pipeline, source=source, is_exactly_once=True)
    sink = pipeline.sink
    if sink.format in ("foreach_batch", "console"):
        raise TomlKeyError(
            "guarantee", f"guarantee is at_least_once with the sink {sink.format}, which repeats batches"
        )
    if source.group is not None:
        raise TomlKeyError("guarantee", 'guarantee is at_least_once with source.consume_mode = "group"')
    if pipeline.dead_letter_topic is not None:
        raise TomlKeyError(
            "dead_letter_topic", "dead_letter_topic is written at least once: with exactly_once, use dead_letters"
        )
    if sink.format == "odradek":
        if "guarantee" in sink.options:
            raise TomlKeyError("guarantee", "guarantee and sink.options.guarantee exclude each other")
        sink = replace(sink, options=ClientOptions({**exactly_once_options(pipeline.name), **sink.options}))
    return replace(pipeline, source=source, sink=sink)


def _mirror(top: TomlTable, source_table: TomlTable, common: dict[str, Any]) -> MirrorPipeline:
    topics = _topics(source_table)
    source, target = _source(source_table, "mirror", common["group"]), _target(top.table("target"))
    if source.bootstrap_servers == target.bootstrap_servers and not target.topic_prefix:
        # A mirror that writes to the topic it reads never ends.
        raise TomlKeyError("target", "source and target are the same cluster: give target.topic_prefix")
    groups = top.texts("groups")
    for pattern in groups:
        try:
            re2.compile(pattern, options=_quiet())
        except re2.error:
            raise top.error("groups", f"has {pattern!r}, which is not a regular expression") from None
    if groups and is_url(common["checkpoint"]):
        raise top.error("groups", "needs a checkpoint in a local directory, where it keeps the offsets of both sides")
    if groups and source.bootstrap_servers == target.bootstrap_servers:
        raise top.error("groups", "is for another cluster: here both sides have the same groups")
    return MirrorPipeline(**common, topics=topics, source=source, target=target, groups=groups)


def _quiet() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


def _query(top: TomlTable, source_table: TomlTable, common: dict[str, Any], directory: Path) -> QueryPipeline:
    kind = common["kind"]
    streams = _streams(top, kind, directory)
    function = _function(top, "function")
    sql = None
    if function is None:
        only = f"SELECT * FROM {streams[0].name}" if kind == "offline" and len(streams) == 1 else None
        sql = top.text("sql", only).rstrip(";")
    elif top.has("sql"):
        raise top.error("function", "and sql exclude each other")
    on_bad_row = top.choice("on_bad_row", ("dead_letter", "fail", "null"), "dead_letter")
    topic = top.optional_text("dead_letter_topic")
    if topic is not None:
        _check_topic(top, "dead_letter_topic", topic)
        if any(_reads(stream, topic) for stream in streams):
            raise top.error("dead_letter_topic", f"is {topic}, which the pipeline reads")
    created: dict[str, Any] = {
        "dead_letter_replication_factor": top.number("dead_letter_replication_factor", at_least=1),
        "dead_letter_configs": {"retention.ms": "-1"} | top.mapping("dead_letter_configs"),
    }
    if topic is None and (key := next(filter(top.has, created), None)) is not None:
        raise top.error(key, "is for dead_letter_topic")
    for key in ("dead_letters", "dead_letter_topic"):
        if top.has(key) and on_bad_row != "dead_letter":
            raise top.error(key, f'is for on_bad_row = "dead_letter", not "{on_bad_row}"')
    if topic is not None and top.has("dead_letters"):
        raise top.error("dead_letter_topic", "and dead_letters exclude each other")
    dead_letters = _location(directory, top.text("dead_letters", f"{top.text('checkpoint')}.dead_letters"))
    has_values = any(stream.has_fields for stream in streams)
    if is_url(dead_letters) and topic is None and on_bad_row == "dead_letter" and has_values:
        raise top.error(
            "dead_letters",
            f"(by default beside the checkpoint) can't be a URL, {dead_letters}: give a directory that all workers "
            "see, or dead_letter_topic",
        )
    pipeline = QueryPipeline(
        **common,
        directory=directory,
        source=_source(source_table, kind, common["group"]),
        streams=streams,
        sql=sql,
        function=function,
        sink=_sink(top.table("sink"), kind, directory),
        on_bad_row=on_bad_row,
        max_bad_rows=_bad_row_limit(top),
        dead_letters=dead_letters,
        dead_letter_topic=topic,
        **created,
    )
    _check_ends(pipeline)
    _check_group(pipeline)
    return pipeline


def _reads(stream: Stream, topic: str) -> bool:
    topics = stream.topics
    return topic_matcher(topics.pattern)(topic) if topics.pattern else topic in topics.names


def _check_ends(pipeline: QueryPipeline) -> None:
    """Raise `TomlKeyError` if a pipeline would read its own results, or write them among its own files."""
    sink = pipeline.sink
    path, topic = sink.options.get("path"), sink.options.get("topic")
    if path is not None and sink.format in DIRECTORY_FORMATS:
        for key, place in (("checkpoint", pipeline.checkpoint), ("dead_letters", pipeline.dead_letters)):
            if posixpath.normpath(path) == posixpath.normpath(place):
                raise TomlKeyError("sink.path", f"sink.path is the directory of {key}, {place}: give another one")
    own_cluster = sink.options.get("kafka.bootstrap.servers") == pipeline.source.bootstrap_servers
    if topic is None or sink.format != "odradek" or not own_cluster:
        return
    for stream in pipeline.streams:
        if _reads(stream, topic):
            # Such a query reads its own results, and never ends.
            raise TomlKeyError("sink.topic", f"sink.topic is {topic}, which streams.{stream.name} reads")


def _check_group(pipeline: QueryPipeline) -> None:
    """Raise `TomlKeyError` for a member of a group that keeps state: a partition that moves leaves its state behind."""
    stream, *others = pipeline.streams
    if pipeline.source.group is None:
        return
    mode = 'source.consume_mode = "group"'
    if others:
        raise TomlKeyError("source.consume_mode", f"{mode} is for one stream: both sides of a join may move apart")
    if stream.watermark is not None:
        key = f"streams.{stream.name}.watermark"
        raise TomlKeyError(key, f"{key} is for state, which does not move with a partition: leave out {mode}")
    if pipeline.sink.output_mode != "append":
        key = "sink.output_mode"
        raise TomlKeyError(key, f"{key} is append with {mode}, not {pipeline.sink.output_mode}: state does not move")


def _bad_row_limit(top: TomlTable) -> BadRowLimit:
    text = top.text("max_bad_rows", "50%")
    if not (found := re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", text)) or float(found[2] or 0) > 100:
        raise top.error("max_bad_rows", f"is a number of rows, such as '20', or a share up to '100%', not {text!r}")
    return BadRowLimit(rows=int(found[1])) if found[1] else BadRowLimit(share=float(found[2]) / 100)


def _function(table: TomlTable, key: str) -> str | None:
    function = table.optional_text(key)
    if function is not None and not _FUNCTION.fullmatch(function):
        raise table.error(key, f"is MODULE:NAME of a Python function, not {function!r}")
    return function


def _source(table: TomlTable, kind: str, group: str) -> Source:
    mode = "direct" if kind == "mirror" else table.choice("consume_mode", ("direct", "group"), "direct")
    source = Source(
        bootstrap_servers=_servers(table),
        starting_offsets=table.choice("starting_offsets", ("earliest", "latest"), "earliest"),
        max_offsets_per_trigger=table.number("max_offsets_per_trigger", at_least=1),
        min_partitions=None if kind == "mirror" else table.number("min_partitions", at_least=1),
        fail_on_data_loss=table.flag("fail_on_data_loss", default=True),
        kafka=_client_options(table, "kafka"),
        group=group if mode == "group" else None,
        since_ms=table.moment_ms("since") if kind == "offline" else None,
        until_ms=table.moment_ms("until") if kind == "offline" else None,
    )
    if source.since_ms is not None and table.has("starting_offsets"):
        raise table.error("since", "and starting_offsets exclude each other")
    if source.since_ms is not None and source.until_ms is not None and source.since_ms >= source.until_ms:
        raise table.error("until", "is not later than since")
    for key, limit in (("since", source.since_ms), ("until", source.until_ms)):
        if source.group is not None and limit is not None:
            raise table.error(key, 'is for source.consume_mode = "direct": a group goes on where it was')
    table.done()
    return source


def _trigger(top: TomlTable, kind: str) -> Trigger:
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


def _restart(table: TomlTable) -> Restart:
    limit = table.number("limit", at_least=-1)
    restart = Restart(
        limit=20 if limit is None else limit,
        backoff_s=_seconds(table, "backoff", "1 second"),
        max_backoff_s=_seconds(table, "max_backoff", "1 minute"),
    )
    table.done()
    return restart


def _seconds(table: TomlTable, key: str, default: str) -> float:
    text = table.text(key, default)
    number, _, unit = text.partition(" ")
    seconds = _SECONDS.get(unit.strip().removesuffix("s"))
    if seconds is None or not re.fullmatch(r"\d+(\.\d+)?", number):
        raise table.error(key, f"is a duration such as '10 seconds', not {text!r}")
    return float(number) * seconds


def _location(directory: Path, text: str) -> str:
    return text if is_url(text) else str(directory.absolute() / text)


def _check_topic(table: TomlTable, key: str, name: str) -> str:
    try:
        return validate_topic_name(name)
    except OdradekError as error:
        raise table.error(key, f"names no topic: {error}") from None


def _topics(table: TomlTable) -> Topics:
    names, pattern = table.texts("topics"), table.optional_text("pattern") or ""
    if bool(names) == bool(pattern):
        raise table.error("topics", "or pattern is required: give exactly one of them")
    for name in names:
        _check_topic(table, "topics", name)
    if pattern:
        try:
            topic_matcher(pattern)
        except ConfigurationError as error:
            raise table.error("pattern", str(error).removeprefix("subscribePattern ")) from None
    return Topics(names=names, pattern=pattern)


def _value(table: TomlTable, directory: Path) -> dict[str, Any]:
    """Return the fields of `Stream` about its values: value, format, schema, message, framing."""
    encoding = table.choice("format", ("json", "avro", "protobuf"), "json")
    keys = {
        "value": encoding == "json",
        "schema": encoding != "json",
        "message": encoding == "protobuf",
        "framing": encoding != "json",
    }
    for key, is_for_it in keys.items():
        if table.has(key) and not is_for_it:
            raise table.error(key, f'is not for format = "{encoding}"')
    if encoding == "json":
        return {"value": table.optional_text("value")}
    return {
        "value": None,
        "format": encoding,
        "schema": str(directory.absolute() / table.text("schema")),
        "message": table.text("message") if encoding == "protobuf" else None,
        "framing": table.choice("framing", ("confluent",)) if table.has("framing") else None,
    }


def _streams(top: TomlTable, kind: str, directory: Path) -> tuple[Stream, ...]:
    tables = top.table("streams")
    found = []
    for name in tables.keys:
        if not _NAME.fullmatch(name):
            raise tables.error(name, "is not a name for a view: letters, digits and _")
        table = tables.table(name)
        stream = Stream(
            name=name,
            topics=_topics(table),
            **_value(table, directory),
            headers=table.flag("headers", default=False),
            key=table.choice("key", ("text", "binary"), "text"),
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


def _sink(table: TomlTable, kind: str, directory: Path) -> Sink:
    formats = (
        *FILE_FORMATS,
        "delta",
        "iceberg",
        "foreach_batch",
        *(("odradek", "console") if kind == "real_time" else ()),
    )
    sink_format = table.choice("format", formats, "parquet")
    options = _client_options(table, "options")
    partition_by: tuple[str, ...] = ()
    function, target_file_bytes = None, 0
    output_mode = (
        table.choice("output_mode", ("append", "update", "complete"), "append") if kind == "real_time" else "append"
    )
    if sink_format in DIRECTORY_FORMATS:
        options["path"] = _location(directory, table.text("path"))
        partition_by = table.texts("partition_by")
    elif sink_format == "iceberg":
        # Iceberg's option for the name of a table, as a catalog knows it.
        options["path"] = table.text("table")
        options.setdefault("fanout-enabled", "true")
    elif sink_format == "foreach_batch":
        function = _function(table, "function")
        if function is None:
            raise table.error("function", "is missing: MODULE:NAME of a function (batch, batch_id)")
    elif sink_format == "odradek":
        options["kafka.bootstrap.servers"] = _servers(table)
        if (topic := table.optional_text("topic")) is not None:
            options["topic"] = _check_topic(table, "topic", topic)
    if sink_format in FILE_FORMATS and output_mode != "append":
        raise table.error("output_mode", f"is append for files, not {output_mode}")
    if sink_format == "parquet" and kind == "offline":
        size = table.number("target_file_bytes", at_least=0)
        target_file_bytes = 128 << 20 if size is None else size
    table.done()
    return Sink(
        format=sink_format,
        output_mode=output_mode,
        partition_by=partition_by,
        options=options,
        function=function,
        target_file_bytes=target_file_bytes,
    )


def _client_options(table: TomlTable, key: str) -> ClientOptions:
    try:
        return resolved(table.mapping(key))
    except TomlKeyError:
        raise
    except ConfigurationError as error:
        raise table.error(key, f"can't be used: {error}") from None


def _servers(table: TomlTable) -> str:
    """Return the addresses of brokers in one form, by which two tables name the same cluster."""
    try:
        return ",".join(bootstrap_addresses([table.text("bootstrap_servers")]))
    except TomlKeyError:
        raise
    except ConfigurationError as error:
        raise table.error("bootstrap_servers", f"can't be used: {error}") from None


def _target(table: TomlTable) -> Target:
    target = Target(
        bootstrap_servers=_servers(table),
        topic_prefix=table.optional_text("topic_prefix") or "",
        replication_factor=table.number("replication_factor", at_least=1),
        kafka=_client_options(table, "kafka"),
    )
    table.done()
    return target


def key_lines(text: str) -> dict[str, int]:
    """Return the line number, from 1, of each table header and key by its dotted name, except in inline tables."""
    lines: dict[str, int] = {}
    table, closing = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is not None:
            if closing in line:
                closing = None
            continue
        if header := _HEADER.match(line):
            table = _plain(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{_plain(key[1])}".lstrip("."), number)
        closing = next((quotes for quotes in _QUOTES if line.count(quotes) == 1), None)
    return lines


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a key, else of the nearest table around it, else None."""
    while key:
        if key in lines:
            return lines[key]
        key = key.rpartition(".")[0]
    return None


def line_in_value(text: str, line: int, line_of_value: int) -> int:
    """Return the line of `text` that is line `line_of_value` (from 1) of a value whose key is on line `line`."""
    rows = text.splitlines()
    first = line
    if rows[line - 1].partition("=")[2].strip().strip("\"'") == "":
        first = next((number for number in range(line + 1, len(rows) + 1) if rows[number - 1].strip()), line)
    return first + line_of_value - 1


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
