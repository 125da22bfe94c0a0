"""The topics of a mirror: before a record is copied, each is there with as many partitions as at the source.

A topic that the mirror creates also gets what the source's was configured with, its retention above all: records keep
their timestamps, so a copy may be old on the day that it is made.
"""

from collections.abc import Mapping
from typing import Final

from odradek.clients.cluster import Cluster
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.pipelines.config import MirrorPipeline
from odradek.protocol.api import ApiKey
from odradek.spark.bridge import Bridge
from odradek.spark.lookup import ClusterLookup
from odradek.spark.options import Strategy, Subscribe, SubscribePattern
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings

_TOPIC_RESOURCE: Final = 2
_SET_ON_THE_TOPIC: Final = 1
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
"""What belongs to a cluster and not to the data, as MirrorMaker has it; and a copy's timestamps are the source's."""


class MirrorTopics:
    """Asks the source what there is, and makes it at the target."""

    def __init__(self, pipeline: MirrorPipeline) -> None:
        source, target = pipeline.source, pipeline.target
        source_settings = client_settings(ScanSettings, source.bootstrap_servers, source.kafka)
        self._lookup = ClusterLookup(source_settings)
        self._source_bridge = Bridge(source_settings)
        self._target_bridge = Bridge(client_settings(SinkSettings, target.bootstrap_servers, target.kafka))
        self._prefix = target.topic_prefix
        self._replication_factor = -1 if target.replication_factor is None else target.replication_factor
        topics = pipeline.topics
        self._strategy: Strategy = (
            Subscribe(topics=topics.names) if topics.names else SubscribePattern(pattern=topics.pattern)
        )
        self._known: dict[str, int] = {}

    def ensure(self) -> None:
        """Create what is missing. Raises `ConfigurationError` if a topic there has another number of partitions."""
        counts: dict[str, int] = {}
        for partition in self._lookup.partitions(self._strategy):
            counts[partition.topic] = counts.get(partition.topic, 0) + 1
        new = {topic: count for topic, count in counts.items() if self._known.get(topic) != count}
        if new:
            configs = self._source_bridge.run(lambda cluster: _topic_configs(cluster, list(new)))
            self._target_bridge.run(lambda cluster: self._create(cluster, new, configs))
            self._known.update(new)

    def close(self) -> None:
        """Give the connections back."""
        self._lookup.close()
        self._source_bridge.close()
        self._target_bridge.close()

    async def _create(
        self, cluster: Cluster, counts: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        wanted = [
            {
                "name": self._prefix + topic,
                "num_partitions": count,
                "replication_factor": self._replication_factor,
                "assignments": [],
                "configs": [{"name": name, "value": value} for name, value in configs.get(topic, {}).items()],
            }
            for topic, count in counts.items()
        ]
        message = {"topics": wanted, "timeout": cluster.settings.request_timeout_ms, "validate_only": False}
        response = await (await cluster.controller()).request(ApiKey.CREATE_TOPICS, message)
        for topic in response.topics:
            if topic.error_code not in {ErrorCode.none, ErrorCode.topic_already_exists}:
                code = topic.error_code
                raise KafkaError(code, f"topic {topic.name!r} can't be created: {code.name.upper()}")
        for topic, count in counts.items():
            found = await cluster.topic(self._prefix + topic, timeout_ms=cluster.settings.request_timeout_ms)
            if len(found.numbers) != count:
                raise ConfigurationError(
                    f"the mirror keeps partitions, and topic {self._prefix + topic!r} has {len(found.numbers)} "
                    f"at the target where the source has {count}"
                )


async def _topic_configs(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """What was set on each topic, and is about its data."""
    connection = await cluster.any_connection()
    if not connection.supports(ApiKey.DESCRIBE_CONFIGS):
        return {}
    response = await connection.request(
        ApiKey.DESCRIBE_CONFIGS,
        {
            "resources": [
                {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None}
                for topic in topics
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
    )
    return {
        result.resource_name: {
            each.name: each.value
            for each in result.configs
            if each.config_source == _SET_ON_THE_TOPIC and each.value is not None and each.name not in _NOT_COPIED
        }
        for result in response.results
    }
