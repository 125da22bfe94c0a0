"""The internal topic of one kind of coordinator: it is created when a coordinator is first looked for."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from odradek.broker.metadata_cache import MetadataCache
from odradek.config import BrokerConfig
from odradek.metadata.image import BrokerImage
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.model.java_hash import coordinator_partition
from odradek.runtime.rate_limited_log import RateLimitedLog

_log = logging.getLogger("odradek.coordinators")
CreateTopic = Callable[[NewTopic], Awaitable[None]]
"""Creates a topic, and returns when it is in the image."""


class TopicKind(Struct, frozen=True, kw_only=True):
    """An internal topic: its name, and the configuration that it is created with."""

    name: str
    prefix: str
    """The prefix of its configuration keys, such as `offsets.topic`."""
    config: Callable[[BrokerConfig], Mapping[str, str]]

    def new_topic(self, config: BrokerConfig, broker_count: int) -> NewTopic:
        """Return the topic to create: `PREFIX.num.partitions` with `PREFIX.replication.factor` replicas.

        If that key is not set, there are no more replicas than brokers.
        """
        return NewTopic(
            name=self.name,
            num_partitions=_number(config, f"{self.prefix}.num.partitions"),
            replication_factor=replication_factor(config, f"{self.prefix}.replication.factor", broker_count),
            config={
                "cleanup.policy": "compact",
                "segment.bytes": str(_number(config, f"{self.prefix}.segment.bytes")),
                **self.config(config),
            },
        )


def replication_factor(config: BrokerConfig, key: str, broker_count: int) -> int:
    """Return the value of `key`, and at most `broker_count` if no layer sets it: one broker has to suffice."""
    factor = _number(config, key)
    return factor if config.is_explicit(key) else max(min(factor, broker_count), 1)


def _number(config: BrokerConfig, key: str) -> int:
    value = config.get(key)
    assert isinstance(value, int)
    return value


class CoordinatorTopic:
    """One internal topic, and the brokers that coordinate its keys."""

    def __init__(self, kind: TopicKind, metadata: MetadataCache, create_topic: CreateTopic) -> None:
        self._kind: Final = kind
        self._metadata = metadata
        self._create_topic = create_topic
        self._failures = RateLimitedLog(_log)

    async def find_coordinator(self, key: str) -> BrokerImage:
        """Return the coordinator of a key; create the topic if it does not exist.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE if the topic cannot be created, or its partition has no leader.
        """
        topic_partition, image = await self.partition(key), self._metadata.image
        partition = image.partition(topic_partition)
        leader = None if partition is None else image.brokers.get(partition.leader)
        if leader is None:
            text = f"{topic_partition}, the partition for {key!r}, has no leader"
            raise KafkaError(ErrorCode.coordinator_not_available, text)
        return leader

    async def partition(self, key: str) -> TopicPartition:
        """Return the partition of a key; create the topic if it does not exist.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE if the topic cannot be created.
        """
        name = self._kind.name
        if name not in self._metadata.image.topics:
            await self._create()
        topic = self._metadata.image.topics.get(name)
        count = 1 if topic is None else max(len(topic.partitions), 1)
        return TopicPartition(name, coordinator_partition(key, count))

    async def _create(self) -> None:
        kind, config, broker_count = self._kind, self._metadata.config, len(self._metadata.image.brokers)
        topic = kind.new_topic(config, broker_count)
        min_in_sync = int(topic.config.get("min.insync.replicas") or config.min_insync_replicas)
        if topic.replication_factor <= min_in_sync and broker_count > 1:
            _log.warning(
                "Creating %s with %s.replication.factor=%d and min.insync.replicas=%d: its coordinators are "
                "unavailable while a broker is down; choose a replication factor above min.insync.replicas",
                kind.name, kind.prefix, topic.replication_factor, min_in_sync,
            )  # fmt: skip
        try:
            await self._create_topic(topic)
        except (KafkaError, UnavailableError) as error:
            text = "Failed to create %s, so that clients find no coordinator: %s (its keys begin with %s)"
            self._failures.log("creation", logging.WARNING, text, kind.name, error, kind.prefix)
            raise KafkaError(ErrorCode.coordinator_not_available, f"{kind.name}: {error}") from error
