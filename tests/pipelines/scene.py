"""Pipelines of a test in a real Spark, between a cluster to read and one to mirror to."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import AnyPipeline
from odradek.pipelines.runner import PipelineRun, run_pipelines
from odradek.pipelines.status import Status
from odradek.runtime import system_runtime
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker


class Scene:
    """A new topic of three partitions in `source`, and pipelines below `directory`, by their files' texts.

    A text has `{topic}`, `{source}` and `{target}`, the bootstrap servers of the two clusters, and other names.
    """

    def __init__(
        self, spark: Any, source: ServedBroker, target: ServedBroker, admin: Any, topic: str, directory: Path
    ) -> None:
        self.spark, self.source, self.target, self.admin = spark, source, target, admin
        self.topic, self.directory = topic, directory
        self.names = {"topic": topic, "source": source.bootstrap_servers, "target": target.bootstrap_servers}

    def job(self, text: str, directory: Path | None = None, **names: str) -> AnyPipeline:
        """Return the pipeline of a file with this text."""
        values = tomllib.loads(text.format(**{**self.names, **names}))
        return parse_pipeline(values, directory=directory or self.directory, default_name="job")

    def run(self, *texts: str, **names: str) -> list[Status]:
        """Run pipelines to their end."""
        return run_pipelines(self.spark, [self.job(text, None, **names) for text in texts])

    @contextmanager
    def started(self, text: str) -> Iterator[PipelineRun]:
        """Run a pipeline during the block."""
        run = PipelineRun(self.spark, self.job(text), system_runtime())
        try:
            yield run
        finally:
            run.stop()

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """Return the rows of all Parquet files of a sink."""
        found: list[dict[str, Any]] = (
            ds.dataset(self.directory / folder, format="parquet", partitioning="hive").to_table().to_pylist()
        )
        return found

    def numbers(self, folder: str) -> list[int]:
        return sorted(row["number"] for row in self.rows(folder))

    @property
    def there(self) -> Any:
        """An admin client of the target."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.target.bootstrap_servers})

    def ends(self, group: str) -> tuple[int, int]:
        """Return the sums of the group's offsets in the topic, as any tool sees them, and of the partitions' ends."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        places = [TopicPartition(self.topic, number) for number in range(3)]
        request = [ConsumerGroupTopicPartitions(group, places)]
        offsets = self.admin.list_consumer_group_offsets(request)[group].result(30).topic_partitions
        ends = self.admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
        return sum(each.offset for each in offsets), sum(end.result(30).offset for end in ends.values())

    def committed(self, group: str) -> int:
        """Return the sum of the group's offsets; below 0 if a partition has none."""
        return self.ends(group)[0]

    def lag(self, group: str) -> int:
        committed, ends = self.ends(group)
        return ends - committed


def consumed(broker: ServedBroker, topic: str, count: int) -> list[Any]:
    """Return messages of a topic, through librdkafka, by partition and offset."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "tests", "enable.auto.commit": False}
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []

    def is_all() -> bool:
        found.extend(consumer.consume(500, 0.5))
        return len(found) >= count

    try:
        eventually(is_all, what=f"{count} records")
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
