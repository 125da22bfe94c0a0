"""Checks a query against its sink before it starts; Spark reports some of these errors only in the first batch."""

from typing import Any, Final

from odradek.pipelines.config import QueryPipeline, TomlKeyError
from odradek.pipelines.errors import errors_about, spark_errors
from odradek.pipelines.functions import load_function
from odradek.spark.options import parse_write_options
from odradek.spark.settings import SinkSettings, client_settings

_LIBRARIES: Final = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "io.delta:delta-spark_2.13:VERSION"),
    "iceberg": (
        "org.apache.iceberg.spark.source.IcebergSource",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
    ),
}
"""A class of each table format, and the package that has it."""


def check_sink(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Raise `TomlKeyError` if the sink cannot write the query's columns, or not in its output mode."""
    sink = pipeline.sink
    missing = [name for name in sink.partition_by if name.lower() not in map(str.lower, frame.columns)]
    if missing:
        raise TomlKeyError(
            "sink.partition_by",
            f"sink.partition_by names no column of the query: {missing[0]}; there are {', '.join(frame.columns)}",
        )
    if sink.function is not None:
        load_function(sink.function, pipeline.directory, "sink.function")
    if sink.format in _LIBRARIES:
        _check_library(session, sink.format)
    if sink.format == "odradek":
        _check_topic_sink(pipeline, frame)
    _check_csv(session, pipeline, frame)
    _check_output_mode(session, pipeline, frame)


def _check_csv(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Raise `TomlKeyError` for a column that CSV cannot hold. Over Spark Connect, check nothing."""
    if pipeline.sink.format != "csv" or not hasattr(frame, "_jdf"):
        return
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
    """Raise `TomlKeyError` if Spark lacks the JAR of a table format. Over Spark Connect, check nothing."""
    if not hasattr(session, "_jvm"):
        return
    class_name, package = _LIBRARIES[sink_format]
    try:
        session._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(class_name)
    except spark_errors():
        raise TomlKeyError(
            "sink.format",
            f"sink.format: Spark has no JAR of {sink_format.capitalize()}: give --conf spark.jars.packages={package}, "
            "in the version for this Spark, and its other settings",
        ) from None


def _check_topic_sink(pipeline: QueryPipeline, frame: Any) -> None:
    from odradek.spark.schema import check_sink_schema

    with errors_about("sink"):
        written = parse_write_options(pipeline.sink.options)
        client_settings(SinkSettings, written.bootstrap_servers, written.client)
    with errors_about("sql" if pipeline.sql else "function"):
        check_sink_schema(frame.schema, topic=written.topic, include_timestamp=written.include_timestamp)


def _check_output_mode(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Let Spark check the query for streaming: an aggregation in mode append needs a watermark, for example.

    Over Spark Connect, the server checks it when the query starts.
    """
    if not hasattr(frame, "_jdf"):
        return
    jvm = session._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, pipeline.sink.output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    with errors_about("sql" if pipeline.sql else "function"):
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
