"""Checks a query, its sink and its topics before it starts; Spark reports some of these errors only in a batch."""

import json
import logging
from pathlib import Path
from typing import Any, Final

from odradek.config.definition import definitions
from odradek.config.toml import TomlKeyError, TomlPreconditionError
from odradek.model import ConfigurationError
from odradek.pipelines.config.pipelines import (
    FILE_FORMATS,
    TABLE_FORMAT,
    AnyPipeline,
    MirrorPipeline,
    QueryPipeline,
    Topics,
    is_url,
)
from odradek.pipelines.errors import errors_about, spark_errors
from odradek.pipelines.files.sink_files import PARTITION, check_columns
from odradek.pipelines.functions import load_function
from odradek.pipelines.mirror.topics import topics_strategy
from odradek.runtime import Disk
from odradek.spark.options import Edge, parse_write_options
from odradek.spark.reading.boundaries import find_partitions
from odradek.spark.reading.lookup import ClusterLookup
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings
from odradek.spark.tables.options import parse_table_options
from odradek.tables.table import progress_in_main

_log = logging.getLogger("odradek.pipelines")
_TOPICS_MS: Final = 5_000
"""The longest wait for the answer of a broker in `check_topics`."""

_LIBRARIES: Final = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "io.delta:delta-spark_2.13:VERSION"),
    "iceberg": (
        "org.apache.iceberg.spark.source.IcebergSource",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
    ),
}
"""A class of each table format, and the package that has it."""


def check_sink(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Raise `TomlKeyError` if the sink cannot write the query's columns, or not in its output mode.

    Over Spark Connect, the server checks some of this only when the query starts.
    """
    sink = pipeline.sink
    names = [name.lower() for name in frame.columns]
    twice = next((name for name in frame.columns if names.count(name.lower()) > 1), None)
    if twice is not None and sink.format not in ("foreach_batch", "console"):
        key = pipeline.query_key
        raise TomlKeyError(key, f"{key}: two columns are named {twice}, which no reader reads: rename one with AS")
    missing = [name for name in sink.partition_by if name.lower() not in map(str.lower, frame.columns)]
    if sink.format == TABLE_FORMAT:
        _check_table_sink(pipeline, frame)
    elif missing:
        raise TomlKeyError(
            "sink.partition_by",
            f"sink.partition_by names no column of the query: {missing[0]}; there are {', '.join(frame.columns)}",
        )
    if sink.function is not None:
        load_function(sink.function, pipeline.directory, "sink.function")
    if sink.format == "odradek":
        _check_topic_sink(pipeline, frame)
    if not hasattr(session, "_jvm"):
        return
    if sink.format in _LIBRARIES:
        _check_library(session, sink.format)
    if sink.format == "csv":
        _check_csv(session, frame)
    with errors_about(pipeline.query_key):
        _check_query(session, pipeline, frame)


def check_directories(disk: Disk, pipeline: AnyPipeline) -> None:
    """Raise `TomlKeyError` if this process cannot write to a local directory of the pipeline, or make it."""
    places: dict[str, str] = {"checkpoint": pipeline.checkpoint}
    if isinstance(pipeline, QueryPipeline):
        if pipeline.sink.path is not None:
            places["sink.path"] = pipeline.sink.path
        has_fields = any(stream.has_fields for stream in pipeline.streams)
        if pipeline.on_bad_row == "dead_letter" and pipeline.dead_letter_topic is None and has_fields:
            places["dead_letters"] = pipeline.dead_letters
    for key, place in places.items():
        if is_url(place):
            continue
        there = next(each for each in map(str, (Path(place), *Path(place).parents)) if disk.exists(each))
        if not disk.is_directory(there) or not disk.is_writable(there):
            problem = "is not writable" if disk.is_directory(there) else "is not a directory"
            raise TomlPreconditionError(key, f"{key} {place} cannot be written: {there} {problem}")


def offsets_of_table(disk: Disk, pipeline: QueryPipeline) -> str | None:
    """Return the `startingOffsets` of a pipeline whose checkpoint is new and whose table has its earlier rows.

    None with a checkpoint that has offsets, and for other sinks, several streams, and a member of a group: these begin
    where their file says.
    """
    is_for = pipeline.sink.format == TABLE_FORMAT and len(pipeline.streams) == 1
    if not is_for or pipeline.source.consume_mode != "direct" or is_url(pipeline.checkpoint):
        return None
    offsets = f"{pipeline.checkpoint}/offsets"
    if disk.exists(offsets) and any(not name.startswith(".") for name in disk.list(offsets)):
        return None
    options = parse_table_options(pipeline.sink.options)
    progress = progress_in_main(options.location, options.pipeline)
    if len(progress) != 1 or progress[0] is None:
        return None
    lookup = ClusterLookup(client_settings(ScanSettings, pipeline.source.bootstrap_servers, pipeline.source.kafka))
    try:
        partitions = find_partitions(lookup, topics_strategy(pipeline.streams[0]))
    finally:
        lookup.close()
    found: dict[str, dict[str, int]] = {}
    for topic, number in partitions:
        known = progress[0].get(topic)
        offset = None if known is None else known.offsets.get(number)
        found.setdefault(topic, {})[str(number)] = Edge.EARLIEST.value if offset is None else offset
    _log.warning(
        "%s: the checkpoint is new, and the table %s has rows: reading goes on after them",
        pipeline.name,
        options.location,
    )
    return json.dumps(found)


def check_topics(pipeline: AnyPipeline) -> None:
    """Raise `TomlKeyError` if a topic that is read does not exist, `UnavailableError` if no broker answers soon."""
    source = pipeline.source
    known = definitions(ScanSettings)  # others, such as those of a group's member, are checked with the query
    kafka = {key: value for key, value in source.kafka.items() if key in known}
    kafka |= {"default.api.timeout.ms": str(_TOPICS_MS), "request.timeout.ms": str(_TOPICS_MS)}
    if isinstance(pipeline, MirrorPipeline):
        places: dict[str, Topics] = {"source.topics": pipeline.source}
    else:
        places = {f"streams.{stream.name}.topics": stream for stream in pipeline.streams}
    lookup = ClusterLookup(client_settings(ScanSettings, source.bootstrap_servers, kafka))
    try:
        for key, topics in places.items():
            with errors_about(key):
                find_partitions(lookup, topics_strategy(topics))
    finally:
        lookup.close()


def check_files(disk: Disk, pipeline: QueryPipeline, frame: Any, *, claim: bool) -> None:
    """Raise `TomlKeyError` if the sink has files that no reader reads together with new ones; see `check_columns`."""
    directory = local_files(pipeline)
    if directory is None:
        return
    partitions = {name.lower() for name in pipeline.sink.partition_by}
    columns = {
        field.name: field.dataType.simpleString() + PARTITION * (field.name.lower() in partitions)
        for field in frame.schema
    }
    with errors_about(pipeline.query_key):
        by_position = pipeline.sink.format == "csv"
        check_columns(disk, pipeline.checkpoint, directory, columns, by_position=by_position, claim=claim)


def local_files(pipeline: QueryPipeline) -> str | None:
    """Return the directory of a file sink; None if it or the checkpoint is a URL, or for other sinks."""
    directory = pipeline.sink.options.get("path")
    if directory is None or pipeline.sink.format not in FILE_FORMATS:
        return None
    return None if is_url(directory) or is_url(pipeline.checkpoint) else directory


def readable(frame: Any, sink_format: str) -> Any:
    """Return the frame for files and tables, whose readers refuse text that is not UTF-8: U+FFFD takes its place.

    A Kafka key or value that is cast to text may have any bytes.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StringType

    if sink_format not in (*FILE_FORMATS, *_LIBRARIES, TABLE_FORMAT):
        return frame
    texts = [field.name for field in frame.schema if isinstance(field.dataType, StringType)]
    if not texts:
        return frame
    return frame.withColumns({name: sql.make_valid_utf8(sql.col(f"`{name.replace('`', '``')}`")) for name in texts})


def _check_csv(session: Any, frame: Any) -> None:
    """Raise `TomlKeyError` for a column that CSV cannot hold."""
    csv = session._jvm.org.apache.spark.sql.execution.datasources.csv.CSVFileFormat()
    kinds = frame._jdf.schema()
    for index, field in enumerate(frame.schema):
        if not csv.supportDataType(kinds.apply(index).dataType()):
            raise TomlKeyError(
                "sink.format",
                f"sink.format: csv cannot hold column {field.name} of type {field.dataType.simpleString()}: "
                f"write to_json({field.name}), or choose json or parquet",
            )


def _check_library(session: Any, sink_format: str) -> None:
    """Raise `TomlKeyError` if Spark lacks the JAR of a table format."""
    class_name, package = _LIBRARIES[sink_format]
    try:
        session._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(class_name)
    except spark_errors():
        raise TomlPreconditionError(
            "sink.format",
            f"sink.format: Spark has no JAR of {sink_format.capitalize()}: give --conf spark.jars.packages={package}, "
            "in the version for this Spark, and its other settings",
        ) from None


def _check_topic_sink(pipeline: QueryPipeline, frame: Any) -> None:
    from odradek.spark.schema import check_sink_schema

    with errors_about("sink"):
        written = parse_write_options(pipeline.sink.options)
        client_settings(SinkSettings, written.bootstrap_servers, written.client)
    with errors_about(pipeline.query_key):
        check_sink_schema(frame.schema, topic=written.topic, include_timestamp=written.include_timestamp)


def _check_table_sink(pipeline: QueryPipeline, frame: Any) -> None:
    from odradek.spark.tables.writers import check_columns as check_table_columns

    with errors_about("sink"):
        options = parse_table_options(pipeline.sink.options)
    with errors_about(pipeline.query_key):
        check_table_columns(options, frame.schema)


def _check_query(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Raise an error for a query that Spark refuses as a stream (an aggregation in mode append without a watermark).

    Also for a join of two streams without an equality, which Spark refuses only in the first batch.
    """
    jvm, analyzed = session._jvm.org.apache.spark.sql, frame._jdf.queryExecution().analyzed()
    mode = getattr(jvm.streaming.OutputMode, pipeline.sink.output_mode.capitalize())()
    jvm.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(analyzed, mode)
    # The optimizer moves conditions of WHERE into joins.
    plans = [session._jsparkSession.sessionState().optimizer().execute(analyzed)]
    while plans:
        plan = plans.pop()
        children = plan.children()
        plans += [children.apply(index) for index in range(children.size())]
        is_join = plan.nodeName() == "Join" and plan.left().isStreaming() and plan.right().isStreaming()
        if is_join and jvm.catalyst.planning.ExtractEquiJoinKeys.unapply(plan).isEmpty():
            raise ConfigurationError("a join of two streams needs an equality of their columns: ON a.x = b.x")
