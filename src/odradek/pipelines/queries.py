"""Starts the Spark streaming query of a pipeline."""

from typing import Any

from odradek.model import ConfigurationError
from odradek.pipelines.config import (
    MirrorPipeline,
    Pipeline,
    QueryPipeline,
    Source,
    Stream,
    Topics,
    Trigger,
)
from odradek.pipelines.progress import OBSERVED
from odradek.pipelines.values import parse_values


def start_query(spark: Any, pipeline: QueryPipeline) -> Any:
    """Start a query. Raise `ConfigurationError` for a duplicate column, and Spark's errors for wrong SQL."""
    session = _session(spark)
    for stream in pipeline.streams:
        _view(session, pipeline, stream).createOrReplaceTempView(stream.name)
    writer = (
        _counted(session.sql(pipeline.sql))
        .writeStream.format(pipeline.sink.format)
        .outputMode(pipeline.sink.output_mode)
        .options(**pipeline.sink.options)
    )
    if pipeline.sink.partition_by:
        writer = writer.partitionBy(*pipeline.sink.partition_by)
    return _start(writer, pipeline)


def start_mirror(spark: Any, pipeline: MirrorPipeline) -> Any:
    """Start a query that copies records to topics that exist (`mirror.MirrorTopics` creates them)."""
    from pyspark.sql import functions

    records = _records(_session(spark), pipeline.source, pipeline.topics, headers=True)
    copied = records.select(
        "key",
        "value",
        "headers",
        "timestamp",
        "partition",
        functions.concat(functions.lit(pipeline.target.topic_prefix), "topic").alias("topic"),
    )
    kafka = {f"kafka.{key}": value for key, value in pipeline.target.kafka.items()}
    writer = (
        _counted(copied)
        .writeStream.format("odradek")
        .options(**kafka, **{"kafka.bootstrap.servers": pipeline.target.bootstrap_servers})
        # A topic created by the sink might have another number of partitions.
        .option("kafka.allow.auto.create.topics", "false")
    )
    return _start(writer, pipeline)


def _session(spark: Any) -> Any:
    """Return a new session of the same Spark, so that views of one name in two pipelines do not collide."""
    session = spark.newSession()
    # Spark looks a sink up in this thread's active session, and no other public call activates the new one.
    session.createDataFrame([], "nothing INT")
    return session


def _start(writer: Any, pipeline: Pipeline) -> Any:
    return (
        _triggered(writer, pipeline.trigger)
        .queryName(pipeline.name)
        .option("checkpointLocation", str(pipeline.checkpoint))
        .start()
    )


def _triggered(writer: Any, trigger: Trigger) -> Any:
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger.interval)


def _counted(frame: Any) -> Any:
    """Return the same frame with its rows counted by Spark."""
    from pyspark.sql import functions

    return frame.observe(OBSERVED, functions.count(functions.lit(1)).alias("rows"))


def _records(session: Any, source: Source, topics: Topics, *, headers: bool) -> Any:
    options = {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "startingOffsets": source.starting_offsets,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "includeHeaders": str(headers).lower(),
    }
    options |= {f"kafka.{key}": value for key, value in source.kafka.items()}
    if topics.names:
        options["subscribe"] = ",".join(topics.names)
    else:
        options["subscribePattern"] = topics.pattern
    if source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    if source.min_partitions is not None:
        options["minPartitions"] = str(source.min_partitions)
    return session.readStream.format("odradek").options(**options).load()


def _view(session: Any, pipeline: QueryPipeline, stream: Stream) -> Any:
    """Return the stream's records: keys as text, and values as text or, with a schema, as columns."""
    from pyspark.sql import functions

    columns = [functions.col("key").cast("string"), "topic", "partition", "offset", "timestamp"]
    if stream.headers:
        columns.append("headers")
    records = _records(session, pipeline.source, stream.topics, headers=stream.headers)
    if stream.value is None:
        view = records.select(*columns, functions.col("value").cast("string"))
    else:
        view = parse_values(records, stream, columns, pipeline.dead_letters)
    if stream.watermark is None:
        return view
    if stream.event_time not in view.columns:
        raise ConfigurationError(f"streams.{stream.name}.event_time names no column: {stream.event_time}")
    return view.withWatermark(stream.event_time, stream.watermark)
