"""Checks a query against its sink before it starts: Spark itself reports some of this only in the first batch."""

from typing import Any

from odradek.pipelines.config import PipelineKeyError, QueryPipeline
from odradek.pipelines.errors import errors_about
from odradek.spark.options import parse_write_options
from odradek.spark.settings import SinkSettings, client_settings


def check_sink(session: Any, pipeline: QueryPipeline, frame: Any) -> None:
    """Raise `PipelineKeyError` if the sink cannot take the query's columns, or not in this output mode."""
    sink = pipeline.sink
    missing = [name for name in sink.partition_by if name.lower() not in map(str.lower, frame.columns)]
    if missing:
        raise PipelineKeyError(
            "sink.partition_by",
            f"sink.partition_by names no column of the query: {missing[0]}; there are {', '.join(frame.columns)}",
        )
    if sink.format == "odradek":
        _check_topic_sink(sink.options, frame)
    _check_output_mode(session, sink.output_mode, frame)


def _check_topic_sink(options: Any, frame: Any) -> None:
    from odradek.spark.schema import check_sink_schema

    with errors_about("sink"):
        written = parse_write_options(options)
        client_settings(SinkSettings, written.bootstrap_servers, written.client)
    with errors_about("sql"):
        check_sink_schema(frame.schema, topic=written.topic)


def _check_output_mode(session: Any, output_mode: str, frame: Any) -> None:
    """Let Spark check what streaming allows: an aggregation in mode append needs a watermark, for example.

    Over Spark Connect only the server can, when the query starts.
    """
    if not hasattr(frame, "_jdf"):
        return
    jvm = session._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    with errors_about("sql"):
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
