"""Creates a mirror's topics at the target, with as many partitions as at the source, before records are copied.

A created topic also gets the topic configuration of the source, retention above all: records keep their timestamps, so
a copy may be past the default retention when it is made.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.clients import Admin, NewTopic
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType, ConfigSource
from odradek.model import ConfigurationError
from odradek.pipelines.config import MirrorPipeline
from odradek.spark.lookup import ClusterLookup
from odradek.spark.options import Strategy, Subscribe, SubscribePattern
from odradek.spark.session import run_interruptible
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings, shared_keywords

_NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Configurations of the cluster rather than the data, as in MirrorMaker, and those that would change timestamps."""


class MirrorTopics:
    """The topics of one mirror, at its source and its target."""

    def __init__(self, pipeline: MirrorPipeline) -> None:
        source, target = pipeline.source, pipeline.target
        client_settings(SinkSettings, target.bootstrap_servers, target.kafka)
        self._lookup = ClusterLookup(client_settings(ScanSettings, source.bootstrap_servers, source.kafka))
        self._source = shared_keywords(source.bootstrap_servers, source.kafka)
        self._target = shared_keywords(target.bootstrap_servers, target.kafka)
        self._prefix = target.topic_prefix
        self._replication_factor = -1 if target.replication_factor is None else target.replication_factor
        topics = pipeline.topics
        self._strategy: Strategy = (
            Subscribe(topics=topics.names) if topics.names else SubscribePattern(pattern=topics.pattern)
        )
        self._known: dict[str, int] = {}

    def ensure(self) -> None:
        """Create missing topics and partitions. Raise `ConfigurationError` for a target topic with more partitions."""
        counts: dict[str, int] = {}
        for partition in self._lookup.partitions(self._strategy):
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        new = {topic: count for topic, count in counts.items() if self._known.get(topic) != count}
        if new:
            with asyncio.Runner() as runner:
                run_interruptible(runner.get_loop(), self._make(new))
            self._known.update(new)

    def close(self) -> None:
        """Close the connection to the source."""
        self._lookup.close()

    async def _make(self, counts: Mapping[str, int]) -> None:
        async with Admin(**self._target) as target:
            present = {topic.name: len(topic.partitions) for topic in await target.list_topics()}
            missing = [topic for topic in counts if self._prefix + topic not in present]
            configs = await self._configs(missing) if missing else {}
            await target.create_topics(
                NewTopic(
                    name=self._prefix + topic,
                    partitions=counts[topic],
                    replication_factor=self._replication_factor,
                    configs=configs.get(topic, {}),
                )
                for topic in missing
            )
            for topic, count in counts.items():
                there = present.get(self._prefix + topic, count)
                if there > count:
                    raise ConfigurationError(
                        f"the mirror keeps partitions, and topic {self._prefix + topic!r} has {there} at the target "
                        f"where the source has {count}"
                    )
                if there < count:
                    await target.create_partitions(self._prefix + topic, count)

    async def _configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Return the dynamic configuration of each source topic, without `_NOT_COPIED`."""
        resources = [ConfigResource(type=ConfigResourceType.TOPIC, name=topic) for topic in topics]
        async with Admin(**self._source) as source:
            described = await source.describe_configs(resources)
        return {
            resource.name: {
                entry.name: entry.value
                for entry in entries
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
                and entry.value is not None
                and entry.name not in _NOT_COPIED
            }
            for resource, entries in described.items()
        }
