"""Builds, checks and starts the Spark streaming query of a pipeline."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from odradek.config.toml import TomlKeyError
from odradek.model import ConfigurationError
from odradek.pipelines.config.pipelines import (
    TABLE_FORMAT,
    AnyPipeline,
    MirrorPipeline,
    Pipeline,
    QueryPipeline,
    Source,
    Stream,
    Topics,
    Trigger,
    exactly_once_options,
    is_url,
)
from odradek.pipelines.errors import errors_about
from odradek.pipelines.functions import call_query_function, load_function
from odradek.pipelines.mirror.copying import BatchCopier
from odradek.pipelines.progress import OBSERVED
from odradek.pipelines.sinks import check_directories, check_files, check_sink, offsets_of_table, readable
from odradek.pipelines.values import parse_values, value_options
from odradek.runtime import Disk, system_runtime
from odradek.spark.connect import copy_session
from odradek.spark.local.worker_python import restore_worker_python
from odradek.spark.options import DeadLetters, parse_read_options
from odradek.spark.session import CHECKPOINT_FILES, CHECKPOINT_FILES_OF_A_DISK
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings, member_keywords
from odradek.spark.writing.dead_letters import make_destination

_BACKFILL_OFFSETS: Final = 1_000_000
"""The default of offsets per batch for a back-fill, which can resume and end only between batches."""
_SOURCES_SECONDS: Final = 10.0
_STATUS_SECONDS: Final = 0.05
"""The longest wait for a query's sources to start, and the interval of checks."""


def start_query(spark: Any, pipeline: QueryPipeline, disk: Disk) -> Any:
    """Start a query. Raise `TomlKeyError` about a key of the file, or Spark's error."""
    session = new_session(spark, pipeline)
    with errors_about("sink"):
        starting_offsets = offsets_of_table(disk, pipeline)
    frame = build_query(session, pipeline, starting_offsets)
    check_sink(session, pipeline, frame)
    check_files(disk, pipeline, frame, claim=True)
    frame = readable(frame, pipeline.sink.format)
    writer = counted(frame).writeStream.outputMode(pipeline.sink.output_mode).options(**pipeline.sink.options)
    if pipeline.sink.function is not None:
        write = load_function(pipeline.sink.function, pipeline.directory, "sink.function")
        return _start(writer.foreachBatch(write), pipeline)
    writer = writer.format(pipeline.sink.format)
    if pipeline.sink.partition_by and pipeline.sink.format != TABLE_FORMAT:
        writer = writer.partitionBy(*pipeline.sink.partition_by)
    return _start(writer, pipeline)


def build_query(session: Any, pipeline: QueryPipeline, starting_offsets: str | None = None) -> Any:
    """Create the streams' views, and return the analysed query over them. Raise `TomlKeyError` about an invalid key.

    `starting_offsets` are the source's option, in place of the key.
    """
    views: dict[str, Any] = {
        stream.name: _view(session, pipeline, stream, starting_offsets) for stream in pipeline.streams
    }
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    if pipeline.function is not None:
        return call_query_function(pipeline.function, pipeline.directory, views)
    with errors_about("sql"):
        frame = session.sql(pipeline.sql)
        # Spark Connect analyses a query only when its schema is used.
        if not frame.schema.fields:
            raise ConfigurationError("the query has no columns")
    return frame


def start_mirror(spark: Any, pipeline: MirrorPipeline, disk: Disk) -> Any:
    """Start a query that copies records. The target's topics must exist: `mirror.MirrorTopics` creates them.

    Raise `TomlKeyError` about a key of the file, such as `groups` over Spark Connect, or Spark's error.
    """
    from pyspark.sql import functions

    session = new_session(spark, pipeline)
    if pipeline.groups and not hasattr(session, "_jvm"):
        raise TomlKeyError("groups", "groups are not carried over Spark Connect: leave out --remote")
    records = records_of(session, pipeline.source, pipeline.source, headers=True)
    copied = records.select(
        "key",
        "value",
        "headers",
        "timestamp",
        "partition",
        functions.concat(functions.lit(pipeline.target.topic_prefix), "topic").alias("topic"),
    )
    options = {f"kafka.{key}": value for key, value in pipeline.target.kafka.items()} | {
        "kafka.bootstrap.servers": pipeline.target.bootstrap_servers,
        # A topic created by the sink might have another number of partitions.
        "kafka.allow.auto.create.topics": "false",
        "includeTimestamp": "true",
    }
    if pipeline.is_exactly_once:
        options |= exactly_once_options(pipeline.name)
    writer = counted(copied).writeStream
    if pipeline.groups:
        return _start(writer.foreachBatch(BatchCopier(pipeline, disk, options)), pipeline)
    return _start(writer.format("odradek").options(**options), pipeline)


def new_session(spark: Any, pipeline: AnyPipeline) -> Any:
    """Return a new session of the same Spark, so that pipelines can have views of the same name."""
    session = spark.newSession() if hasattr(spark, "_jvm") else copy_session(spark)
    if is_url(pipeline.checkpoint) and session.conf.get(CHECKPOINT_FILES, None) == CHECKPOINT_FILES_OF_A_DISK:
        # On HDFS only Spark's default class replaces a file that exists.
        session.conf.unset(CHECKPOINT_FILES)
    restore_worker_python()
    # Spark looks a sink up in this thread's active session, and no other public call activates the new one.
    session.createDataFrame([], "nothing INT")
    return session


def _start(writer: Any, pipeline: Pipeline) -> Any:
    query = (
        _triggered(writer, pipeline.trigger)
        .queryName(pipeline.name)
        .option("checkpointLocation", str(pipeline.checkpoint))
        .start()
    )
    _wait_for_sources(query)
    return query


def _wait_for_sources(query: Any) -> None:
    """Wait until the query's sources have started or the query has ended, at most `_SOURCES_SECONDS`.

    Spark fails a source whose Python does not start within 10 s; many pipelines that start at once would exceed that.
    """
    from pyspark.errors import StreamingQueryException

    # The first poll of the attempt raises the failure.
    with suppress(StreamingQueryException):
        for _ in range(round(_SOURCES_SECONDS / _STATUS_SECONDS)):
            is_starting = query.status["message"].startswith(("Initializing", "Getting offsets"))
            if not is_starting or query.awaitTermination(_STATUS_SECONDS):
                return


def _triggered(writer: Any, trigger: Trigger) -> Any:
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger.interval)


def counted(frame: Any) -> Any:
    """Return the frame with an observation of its row count, for Spark's progress reports."""
    from pyspark.sql import functions

    return frame.observe(OBSERVED, functions.count(functions.lit(1)).alias("rows"))


def records_of(
    session: Any,
    source: Source,
    topics: Topics,
    *,
    headers: bool,
    group: str | None = None,
    values: Mapping[str, str] | None = None,
    starting_offsets: str | None = None,
) -> Any:
    """Return a streaming DataFrame of the records of `topics`. Raise `TomlKeyError` if `source` is invalid.

    With `group`, the query is a member of that consumer group. `values` are more options of the source.
    `starting_offsets` precede those of `source`.
    """
    options = {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "includeHeaders": str(headers).lower(),
    }
    options |= {f"kafka.{key}": value for key, value in source.kafka.items()}
    if source.since_ms is None or starting_offsets is not None:
        options["startingOffsets"] = starting_offsets or source.starting_offsets
    else:
        # A partition without a record at or after `since` is read from its end.
        options |= {"startingTimestamp": str(source.since_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if group is not None:
        options |= {"consumeMode": "group", "kafka.group.id": group}
    options |= values or {}
    if topics.topics:
        options["subscribe"] = ",".join(topics.topics)
    else:
        options["subscribePattern"] = topics.pattern
    if (limit := source.max_offsets_per_trigger) is None and source.until_ms is not None:
        limit = _BACKFILL_OFFSETS
    if limit is not None:
        options["maxOffsetsPerTrigger"] = str(limit)
    if source.min_partitions is not None:
        options["minPartitions"] = str(source.min_partitions)
    with errors_about("source"):
        # Spark checks these again, in a Python process, and does not know the keys of the file.
        parsed = parse_read_options(options, streaming=True)
    with errors_about("source.kafka"):
        client_settings(ScanSettings, source.bootstrap_servers, parsed.client)
        if parsed.group is not None:
            member_keywords(source.bootstrap_servers, parsed.client, parsed.group)
    return session.readStream.format("odradek").options(**options).load()


def _view(session: Any, pipeline: QueryPipeline, stream: Stream, starting_offsets: str | None) -> Any:
    """Return the stream's records: keys as text; values as text or, if the stream has fields, as columns."""
    from pyspark.sql import functions

    key_column = functions.col("key") if stream.key == "binary" else functions.col("key").cast("string")
    columns = [key_column.alias("key"), "topic", "partition", "offset", "timestamp"]
    if stream.headers:
        columns.append("headers")
    to_topic = stream.has_fields and pipeline.dead_letter_topic is not None
    group = pipeline.group if pipeline.source.consume_mode == "group" else None
    key = f"streams.{stream.name}"
    letters = _dead_letters(pipeline, stream)
    with errors_about(f"{key}.{'value' if stream.schema is None else 'schema'}"):
        values = value_options(stream, letters)
    has_headers = stream.headers or to_topic
    records = records_of(
        session,
        pipeline.source,
        stream,
        headers=has_headers,
        group=group,
        values=values,
        starting_offsets=starting_offsets,
    )
    records = _in_time_range(records, pipeline.source)
    if not stream.has_fields:
        view = records.select(*columns, functions.col("value").cast("string"))
    else:
        servers, kafka = pipeline.source.bootstrap_servers, pipeline.source.kafka
        bad_rows = None if letters is None else make_destination(letters, servers, kafka)
        with errors_about(f"{key}.{'value' if stream.schema is None else 'schema'}"):
            view = parse_values(records, stream, columns, bad_rows)
    if stream.watermark is None:
        return view
    if stream.event_time not in view.columns:
        raise TomlKeyError(f"{key}.event_time", f"{key}.event_time names no column: {stream.event_time}")
    with errors_about(f"{key}.watermark"):
        view = view.withWatermark(stream.event_time, stream.watermark)
        assert view.columns
        return view


def _in_time_range(records: Any, source: Source) -> Any:
    """Return the records within `since` and `until`: offset ranges are not enough, as timestamps are not in order."""
    from pyspark.sql import functions as sql

    if source.since_ms is not None:
        records = records.where(sql.col("timestamp") >= sql.timestamp_millis(sql.lit(source.since_ms)))
    if source.until_ms is not None:
        records = records.where(sql.col("timestamp") < sql.timestamp_millis(sql.lit(source.until_ms)))
    return records


def _dead_letters(pipeline: QueryPipeline, stream: Stream) -> DeadLetters | None:
    """Return where a stream's bad rows go; None if they stay in the query with null fields."""
    if pipeline.on_bad_row == "null":
        return None
    source, is_kept = pipeline.source, pipeline.on_bad_row == "dead_letter"
    return DeadLetters(
        stream=stream.name,
        directory=pipeline.dead_letters if is_kept and pipeline.dead_letter_topic is None else None,
        topic=pipeline.dead_letter_topic if is_kept else None,
        since_ms=source.since_ms,
        until_ms=source.until_ms,
    )


def check_pipeline(spark: Any, pipeline: AnyPipeline) -> str | None:
    """Let Spark analyse a pipeline without running it; return its columns and types as text, None for a mirror.

    Raise `TomlKeyError` about an invalid key.
    """
    session = new_session(spark, pipeline)
    if hasattr(spark, "_jvm"):
        check_directories(system_runtime().disk, pipeline)
    if isinstance(pipeline, MirrorPipeline):
        records_of(session, pipeline.source, pipeline.source, headers=True)
        with errors_about("target.kafka"):
            client_settings(SinkSettings, pipeline.target.bootstrap_servers, pipeline.target.kafka)
        return None
    if not pipeline.trigger.available_now:
        with errors_about("trigger.interval"):
            session.sql(f"SELECT INTERVAL '{pipeline.trigger.interval}'").collect()
    frame = build_query(session, pipeline)
    check_sink(session, pipeline, frame)
    check_files(system_runtime().disk, pipeline, frame, claim=False)
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
