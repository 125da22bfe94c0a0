"""`Admin`: describes and changes topics, groups, offsets, configurations and brokers."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.clients.admin.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    GroupDescription,
    GroupListing,
    NewTopic,
    TopicDescription,
    config_entry,
    topic_description,
)
from odradek.clients.admin.group_generation import GenerationReader
from odradek.clients.admin.groups import (
    alter_group_offsets,
    current_metadata,
    delete_group_offsets,
    delete_groups,
    describe_groups,
    list_group_offsets,
    list_groups,
)
from odradek.clients.admin.log_dirs import LogDirDescription, describe_log_dirs
from odradek.clients.admin.reassignments import (
    ElectionType,
    PartitionReassignment,
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from odradek.clients.admin.rebalances import rebalance_history
from odradek.clients.admin.registrations import fenced_brokers, unregister_broker
from odradek.clients.admin.transactions import ProducerDescription, abort_transaction, describe_producers
from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.metadata import ClusterMetadata
from odradek.clients.offsets import OffsetAndTimestamp, list_offsets
from odradek.clients.retry import retrying
from odradek.clients.settings import ClientSettings, make_settings
from odradek.config import Alteration
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.messages import optional
from odradek.runtime import Runtime, system_runtime
from odradek.wire.client_connection import ClientConnection

T = TypeVar("T")


class Admin:
    """An admin client for any Kafka cluster.

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("flights", partitions=8)

    Settings are those of `odradek.clients.settings`. Calls retry retriable errors for `timeout_ms`
    (`default_api_timeout_ms` by default, 60 s) and raise `KafkaError` with the broker's reason, or `UnavailableError`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        runtime: Runtime | None = None,
        timeout_ms: int | None = None,
        **settings: object,
    ) -> None:
        addresses = bootstrap_servers if isinstance(bootstrap_servers, str) else tuple(bootstrap_servers)
        made = make_settings(ClientSettings, settings | {"bootstrap_servers": addresses})
        self._cluster = Cluster(made, runtime or system_runtime())
        self._timeout_ms = made.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. Raises `UnavailableError` if no broker answers in time."""
        try:
            await self._cluster.start(timeout_ms=self._timeout_ms)
        except BaseException:
            await self._cluster.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- topics -------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create one topic; -1 is the cluster's default. Raises `KafkaError` TOPIC_ALREADY_EXISTS and others."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {})
        await self.create_topics([topic], validate_only=validate_only)

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or with `validate_only` check whether they could be created.

        Raises the first `KafkaError` after all topics were tried.
        """
        message = {
            "topics": [topic.message() for topic in topics],
            "timeout": self._timeout_ms,
            "validate_only": validate_only,
        }

        async def attempt() -> None:
            connection = await self._cluster.controller()
            response = await connection.request(ApiKey.CREATE_TOPICS, message)
            for topic in response.topics:
                _raise(f"topic {topic.name!r}", topic)

        await self._retry(attempt)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and their records. Raises the first `KafkaError` after all topics were tried."""
        wanted = list(names)
        message = {
            "topics": [{"name": name, "topic_id": None} for name in wanted],
            "topic_names": wanted,
            "timeout": self._timeout_ms,
        }

        async def attempt() -> None:
            connection = await self._cluster.controller()
            response = await connection.request(ApiKey.DELETE_TOPICS, message)
            for topic in response.responses:
                _raise_about_topic(topic.name, topic)

        await self._retry(attempt)

    async def create_partitions(
        self,
        name: str,
        total: int,
        *,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase a topic's partitions to `total`; `assignments` has the brokers of each new one, in order.

        Records with a key may go to another partition from then on. Raises `KafkaError` INVALID_PARTITIONS and others.
        """
        placed = None if assignments is None else [{"broker_ids": list(brokers)} for brokers in assignments]
        message = {
            "topics": [{"name": name, "count": total, "assignments": placed}],
            "timeout": self._timeout_ms,
            "validate_only": validate_only,
        }

        async def attempt() -> None:
            connection = await self._cluster.controller()
            response = await connection.request(ApiKey.CREATE_PARTITIONS, message)
            for topic in response.results:
                _raise_about_topic(name, topic)

        await self._retry(attempt)

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Return the descriptions of all topics, by name."""
        metadata = await self._metadata(None)
        return [
            topic_description(topic)
            for _, topic in sorted(metadata.topics.items())
            if include_internal or not topic.is_internal
        ]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Describe topics with partitions, leaders and replicas. Raises `KafkaError` for one that does not exist."""
        wanted = list(names)
        metadata = await self._metadata(wanted)
        for name in wanted:
            topic = metadata.topics.get(name)
            if topic is None or topic.error_code == ErrorCode.unknown_topic_or_partition:
                raise _UnknownTopicError(name)
            if topic.error_code not in {ErrorCode.none, ErrorCode.leader_not_available}:
                raise KafkaError(topic.error_code, f"topic {name!r}: {topic.error_code.name.upper()}")
        return {name: topic_description(metadata.topics[name]) for name in wanted}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by partition for `EARLIEST`, `LATEST` or a time in ms, as `offsets.list_offsets` does."""
        return await list_offsets(self._cluster, wanted, isolation_level=isolation_level, timeout_ms=self._timeout_ms)

    # ---- replicas and leaders -----------------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Collection[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Start reassigning partitions to these replicas, the preferred leader first; None cancels a reassignment.

        Old replicas are removed after the new ones have copied the records; `list_partition_reassignments` shows what
        is in progress. Raises `RefusedPartitionsError` for refused partitions, after the others were started.
        """
        await alter_partition_reassignments(
            self._cluster,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=self._timeout_ms,
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress, of all or of some partitions. Raises `KafkaError`."""
        return await list_partition_reassignments(self._cluster, partitions, timeout_ms=self._timeout_ms)

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of all partitions that need one, or of some; return the errors by partition.

        ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE and others are results;
        errors of the whole request are raised as `KafkaError`.
        """
        return await elect_leaders(self._cluster, election_type, partitions, timeout_ms=self._timeout_ms)

    # ---- groups -------------------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all coordinators by id, filtered by `states` (`Stable`, …) and `types` (`classic`, …).

        Raises `KafkaError` UNSUPPORTED_VERSION if a broker is too old for a filter.
        """
        return await list_groups(self._cluster, states=states, types=types, timeout_ms=self._timeout_ms)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describe one group, as `describe_groups` does. Raises `KafkaError` GROUP_ID_NOT_FOUND and others."""
        found = (await self.describe_groups([group_id]))[group_id]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups: members, and the committed offset, end offset and lag of each partition; or errors by group.

        GROUP_ID_NOT_FOUND is the result of a group that has neither members nor offsets.
        """
        return await describe_groups(self._cluster, group_ids, timeout_ms=self._timeout_ms)

    def generation_reader(self, group_id: str) -> GenerationReader:
        """Return a reader of a classic group's generation, which is in no response to an administrator."""
        return GenerationReader(self._cluster, group_id, timeout_ms=self._timeout_ms)

    async def rebalance_history(self, group_id: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Return a group's last rebalances, the oldest first, as the JSON objects of Odradek's rebalance journal.

        The list is empty for a group without a rebalance in the journal, and for clusters without the journal.
        """
        return await rebalance_history(self._cluster, group_id, limit=limit, timeout_ms=self._timeout_ms)

    async def list_group_offsets(
        self, group_ids: Iterable[str], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
        """Return the committed offsets of groups by partition, empty for unknown groups; or errors by group.

        With `require_stable`, offsets that an open transaction may change are awaited (KIP-447).
        """
        return await list_group_offsets(
            self._cluster, group_ids, require_stable=require_stable, timeout_ms=self._timeout_ms
        )

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets of a group without members; a group that does not exist is created.

        Raises `KafkaError` UNKNOWN_MEMBER_ID if it has members, and `RefusedPartitionsError` for refused partitions,
        after the others were committed.
        """
        await alter_group_offsets(self._cluster, group_id, offsets, timeout_ms=self._timeout_ms)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete empty groups with their offsets.

        Raises `RefusedGroupsError` (NON_EMPTY_GROUP and others by group) after the other groups were deleted.
        """
        await delete_groups(self._cluster, group_ids, timeout_ms=self._timeout_ms)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group.

        Raises `RefusedPartitionsError` (GROUP_SUBSCRIBED_TO_TOPIC and others) after the other offsets were deleted, and
        `KafkaError` for the whole group.
        """
        await delete_group_offsets(self._cluster, group_id, partitions, timeout_ms=self._timeout_ms)

    # ---- transactions -------------------------------------------------------------------------------------------

    async def describe_producers(self, partition: TopicPartition) -> list[ProducerDescription]:
        """Return the idempotent producers in the partition leader's state, with their open transactions (KIP-664)."""
        return await describe_producers(self._cluster, partition, timeout_ms=self._timeout_ms)

    async def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Abort a hanging transaction: one that is open in a partition and unknown to its coordinator.

        The epochs are those of `describe_producers`; use 0 for an unknown coordinator epoch. Raises `KafkaError`
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the producer has started another transaction since.
        """
        await abort_transaction(
            self._cluster,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timeout_ms=self._timeout_ms,
        )

    # ---- the cluster and its configuration ----------------------------------------------------------------------

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """Return the live or all registered brokers, and the controller."""
        await self._cluster.refresh(timeout_ms=self._timeout_ms)
        metadata = self._cluster.metadata
        brokers = {
            node.node_id: BrokerDescription(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in metadata.nodes.values()
        }
        if include_fenced_brokers:
            for each in await fenced_brokers(self._cluster, timeout_ms=self._timeout_ms):
                brokers.setdefault(each.broker_id, each)
        return ClusterDescription(
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            brokers=tuple(each for _, each in sorted(brokers.items())),
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker that is gone for good, so that no replica is placed on it (KIP-631).

        Raises `KafkaError` BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for a broker that is alive.
        """
        await unregister_broker(self._cluster, broker_id, timeout_ms=self._timeout_ms)

    async def describe_log_dirs(self, broker_id: int) -> list[LogDirDescription]:
        """Return a broker's log directories with the sizes of its logs (KIP-113). Raises `KafkaError`."""
        return await describe_log_dirs(self._cluster, broker_id, timeout_ms=self._timeout_ms)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Return the configuration entries of topics and brokers; those of a broker are requested from that broker."""
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for resource in resources:
            message = {
                "resources": [
                    {
                        "resource_type": resource.type.value,
                        "resource_name": resource.name,
                        "configuration_keys": None,
                    }
                ],
                "include_synonyms": include_synonyms,
                "include_documentation": include_documentation,
            }
            found[resource] = await self._describe_configs(resource, message)
        return found

    async def _describe_configs(self, resource: ConfigResource, message: Mapping[str, Any]) -> list[ConfigEntry]:
        async def attempt() -> list[ConfigEntry]:
            connection = await self._connection_for(resource)
            response = await connection.request(ApiKey.DESCRIBE_CONFIGS, message)
            (result,) = response.results
            _raise_about(resource, result)
            return sorted((config_entry(entry) for entry in result.configs), key=lambda entry: entry.name)

        return await self._retry(attempt)

    async def alter_configs(
        self, resource: ConfigResource, alterations: Iterable[Alteration], *, validate_only: bool = False
    ) -> None:
        """Change dynamic configurations of a topic, of a broker, or of all brokers (the empty name) (KIP-339).

        Raises `KafkaError` INVALID_CONFIG, INVALID_REQUEST and others; nothing is changed then.
        """
        configs = [
            {"name": each.name, "config_operation": int(each.operation), "value": each.value} for each in alterations
        ]
        altered = {"resource_type": resource.type.value, "resource_name": resource.name, "configs": configs}
        message = {"resources": [altered], "validate_only": validate_only}

        async def attempt() -> None:
            connection = await self._connection_for(resource)
            response = await connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, message)
            for result in response.responses:
                _raise_about(resource, result)

        await self._retry(attempt)

    async def _connection_for(self, resource: ConfigResource) -> ClientConnection:
        """Return a connection to the broker that the resource belongs to, or to any broker."""
        if resource.type is ConfigResourceType.BROKER and resource.name.isdecimal():
            return await self._cluster.connection(int(resource.name))
        return await self._cluster.least_loaded_connection()

    # ---- helper methods -----------------------------------------------------------------------------------------

    async def _metadata(self, names: list[str] | None) -> ClusterMetadata:
        return await current_metadata(self._cluster, names, timeout_ms=self._timeout_ms)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retrying(self._cluster, attempt, timeout_ms=self._timeout_ms)


class _UnknownTopicError(KafkaError):
    """A topic that does not exist; not retriable, unlike Kafka's error, because no producer is creating it."""

    retriable = False

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def _raise_about(resource: ConfigResource, answer: Any) -> None:
    if resource.type is ConfigResourceType.TOPIC:
        _raise_about_topic(resource.name, answer)
    _raise(f"broker {resource.name}" if resource.name else "all brokers", answer)


def _raise_about_topic(name: str, answer: Any) -> None:
    """Raise a response's error; an unknown topic is not retriable here, because waiting does not create it."""
    if answer.error_code == ErrorCode.unknown_topic_or_partition:
        raise _UnknownTopicError(name)
    _raise(f"topic {name!r}", answer)


def _raise(what: str, answer: Any) -> None:
    """Raise a response's error, if any, with the broker's reason."""
    if answer.error_code != ErrorCode.none:
        reason = optional(answer, "error_message", None) or answer.error_code.name.upper()
        raise KafkaError(answer.error_code, f"{what}: {reason}")
