"""Creates a mirror's topics at the target, with the source's partition counts, and copies topic configurations.

A created topic gets the source's configuration at once, above all its retention: copied records keep their timestamps,
so they may be older than the default retention. Later changes are copied too; a key that only the target has stays.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from odradek.clients import Admin, NewTopic
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType, ConfigSource
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ConfigurationError
from odradek.pipelines.config.pipelines import MirrorPipeline, Topics
from odradek.spark.options import Subscribe, SubscribePattern
from odradek.spark.reading.lookup import ClusterLookup
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
"""Keys about the cluster rather than the data, as in MirrorMaker, and keys that would change or refuse timestamps."""


def topics_strategy(topics: Topics) -> Subscribe | SubscribePattern:
    """Return the strategy with which a source reads `topics`."""
    return Subscribe(topics=topics.topics) if topics.topics else SubscribePattern(pattern=topics.pattern)


def selects(strategy: Subscribe | SubscribePattern, topic: str) -> bool:
    """Return whether a source with this strategy reads `topic`."""
    return strategy.matches(topic) if isinstance(strategy, SubscribePattern) else topic in strategy.topics


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
        self._strategy = topics_strategy(pipeline.source)
        self._known: dict[str, int] = {}
        """The source's partition count of each topic that the target has."""
        self._carried: dict[str, dict[str, str]] = {}
        """The source configurations that were last copied, by topic."""

    def ensure(self) -> None:
        """Create missing topics and partitions at the target. Raise `OdradekError` if a request fails.

        Raise `ConfigurationError` if a target topic has more partitions, or the mirror would read its own copies.
        """
        counts: dict[str, int] = {}
        for partition in self._lookup.partitions(self._strategy):
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        new = {topic: count for topic, count in counts.items() if self._known.get(topic) != count}
        if new:
            run_interruptible(partial(self._make, new))
            self._known.update(new)

    def carry_configs(self) -> None:
        """Copy topic configurations that changed at the source to the target. Raise `OdradekError` if that fails."""
        if self._known:
            run_interruptible(self._carry_configs)

    async def _carry_configs(self) -> None:
        configs = await self._configs(list(self._known))
        changed = {topic: config for topic, config in configs.items() if self._carried.get(topic) != config}
        if not changed:
            return
        async with Admin(**self._target) as target:
            present = await _dynamic_configs(target, [self._prefix + topic for topic in changed])
            for topic, config in changed.items():
                there = present.get(self._prefix + topic, {})
                gone = self._carried.get(topic, {}).keys() - config.keys()
                alterations = [
                    Alteration(name=name, operation=AlterOperation.SET, value=value)
                    for name, value in config.items()
                    if there.get(name) != value
                ] + [
                    Alteration(name=name, operation=AlterOperation.DELETE, value=None)
                    for name in sorted(gone & there.keys())
                ]
                if alterations:
                    resource = ConfigResource(type=ConfigResourceType.TOPIC, name=self._prefix + topic)
                    await target.alter_configs(resource, alterations)
                self._carried[topic] = config

    def close(self) -> None:
        self._lookup.close()

    async def _make(self, counts: Mapping[str, int]) -> None:
        async with Admin(**self._target) as target:
            await self._refuse_own_copies(target, counts)
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
                        f"where the source has {count}: delete it there, or set target.topic_prefix"
                    )
                if there < count:
                    await target.create_partitions(self._prefix + topic, count)

    async def _refuse_own_copies(self, target: Admin, topics: Iterable[str]) -> None:
        """Raise `ConfigurationError` if both cluster ids are equal and the mirror would read a copy that it wrote."""
        copies = [self._prefix + topic for topic in topics]
        own = [copy for copy in copies if selects(self._strategy, copy)]
        if not own:
            return
        async with Admin(**self._source) as source:
            here, there = [(await each.describe_cluster()).cluster_id for each in (source, target)]
        if here is not None and here == there:
            raise ConfigurationError(
                f"source and target are the same cluster, and the mirror would read its own copy {own[0]!r}: give "
                "target.topic_prefix, and a source.pattern that does not match the copies"
            )

    async def _configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Return the dynamic configuration of each source topic, without the keys `_NOT_COPIED`."""
        async with Admin(**self._source) as source:
            return await _dynamic_configs(source, topics)


async def _dynamic_configs(admin: Admin, topics: list[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(type=ConfigResourceType.TOPIC, name=topic) for topic in topics]
    described = await admin.describe_configs(resources)
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
