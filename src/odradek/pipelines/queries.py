"""From a pipeline to a streaming query of Spark's that runs."""

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
    """A started query. Raises `ConfigurationError` for a name that is taken twice, Spark's errors for wrong SQL."""
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
    """A started query that copies records; the topics that it writes must exist (`mirror.MirrorTopics`)."""
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
        # A topic that the sink created by itself might have another number of partitions.
        .option("kafka.allow.auto.create.topics", "false")
    )
    return _start(writer, pipeline)


def _session(spark: Any) -> Any:
    """A session of its own in the same Spark: views of one name in two pipelines must not meet."""
    session = spark.newSession()
    # A sink is looked up in the session that is active in this thread, and nothing else that is public makes one so.
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
    """The same frame, whose rows Spark counts on the way."""
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
    """The stream's records with keys as text and values as text or, with a schema, as columns."""
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
