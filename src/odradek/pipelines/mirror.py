"""The topics of a mirror: each has as many partitions at the target as at the source, before a record is copied."""

from odradek.clients.cluster import Cluster
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.pipelines.config import MirrorPipeline
from odradek.protocol.api import ApiKey
from odradek.spark.bridge import Bridge
from odradek.spark.lookup import ClusterLookup
from odradek.spark.options import Strategy, Subscribe, SubscribePattern
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings


class MirrorTopics:
    """Asks the source what there is, and makes it at the target."""

    def __init__(self, pipeline: MirrorPipeline) -> None:
        source, target = pipeline.source, pipeline.target
        self._lookup = ClusterLookup(client_settings(ScanSettings, source.bootstrap_servers, source.kafka))
        self._bridge = Bridge(client_settings(SinkSettings, target.bootstrap_servers, target.kafka))
        self._target = target
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
            self._bridge.run(lambda cluster: self._create(cluster, new))
            self._known.update(new)

    def close(self) -> None:
        """Give the connections back."""
        self._lookup.close()
        self._bridge.close()

    async def _create(self, cluster: Cluster, counts: dict[str, int]) -> None:
        wanted = {self._target.topic_prefix + topic: count for topic, count in counts.items()}
        replication_factor = self._target.replication_factor
        connection = await cluster.controller()
        response = await connection.request(
            ApiKey.CREATE_TOPICS,
            {
                "topics": [
                    {
                        "name": topic,
                        "num_partitions": count,
                        "replication_factor": -1 if replication_factor is None else replication_factor,
                        "assignments": [],
                        "configs": [],
                    }
                    for topic, count in wanted.items()
                ],
                "timeout": cluster.settings.request_timeout_ms,
                "validate_only": False,
            },
        )
        for topic in response.topics:
            if topic.error_code not in {ErrorCode.none, ErrorCode.topic_already_exists}:
                code = topic.error_code
                raise KafkaError(code, f"topic {topic.name!r} can't be created: {code.name.upper()}")
        for topic, count in wanted.items():
            found = await cluster.topic(topic, timeout_ms=cluster.settings.request_timeout_ms)
            if len(found.numbers) != count:
                raise ConfigurationError(
                    f"the mirror keeps partitions, and topic {topic!r} has {len(found.numbers)} at the target "
                    f"where the source has {count}"
                )
