"""`Admin`: what a cluster has, and how it is changed: topics, groups, offsets, configuration, brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.clients.cluster import Cluster
from odradek.clients.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    GroupDescription,
    GroupListing,
    GroupPartition,
    NewTopic,
    TopicDescription,
    config_entry,
    group_description,
    topic_description,
)
from odradek.clients.group_offsets import OffsetAndMetadata, fetch_group_offsets, find_coordinator
from odradek.clients.log_dirs import LogDirDescription, describe_log_dirs
from odradek.clients.metadata import ClusterMetadata, merge
from odradek.clients.offsets import LATEST, OffsetAndTimestamp, by_topic, list_offsets
from odradek.clients.reassignments import (
    ElectionType,
    PartitionReassignment,
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from odradek.clients.registrations import fenced_brokers, unregister_broker
from odradek.clients.retry import retrying
from odradek.clients.settings import ClientSettings, make_settings
from odradek.clients.transactions import ProducerDescription, abort_transaction, describe_producers
from odradek.config import Alteration
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.messages import optional
from odradek.runtime import Runtime, system_runtime
from odradek.wire.outgoing import Connection

T = TypeVar("T")
_NO_SUCH_GROUP = "Dead"
"""How brokers before Kafka 4 describe a group that they do not know."""


class Admin:
    """Administers any Kafka cluster.

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("flights", partitions=8)

    Settings are those of `odradek.clients.settings`. Every call tries again what fails for a reason that passes, for
    `timeout_ms` (`default_api_timeout_ms` by default, 60 s); it raises `KafkaError` with the broker's reason, or
    `UnavailableError`.
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
        """Reach the cluster; `async with` calls it. Raises `UnavailableError` if no broker answers in time."""
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
        """Create topics, or with `validate_only` say whether that would work. Raises the first error, after all."""
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
        """Delete topics and their records. Raises the first error, after all."""
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
        """Give a topic more partitions, `total` altogether; `assignments`: the brokers of each new one, in order.

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
        """All topics by name."""
        metadata = await self._metadata(None)
        return [
            topic_description(topic)
            for _, topic in sorted(metadata.topics.items())
            if include_internal or not topic.is_internal
        ]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Topics with their partitions, leaders and replicas. Raises `KafkaError` for one that does not exist."""
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
        """Offsets by partition, for `EARLIEST`, `LATEST` or a time in ms; see `offsets.list_offsets`."""
        return await list_offsets(self._cluster, wanted, isolation_level=isolation_level, timeout_ms=self._timeout_ms)

    # ---- replicas and leaders -----------------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Collection[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Begin to give partitions these replicas, the preferred leader first; None gives up what is in progress.

        New replicas copy the records before old ones go: `list_partition_reassignments` tells when that is done.
        Raises `RefusedPartitionsError` for partitions that can't have that, after the others were begun.
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
        """The reassignments in progress: all, or those of some partitions. Raises `KafkaError`."""
        return await list_partition_reassignments(self._cluster, partitions, timeout_ms=self._timeout_ms)

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders, of all partitions that need one or of some, and say why not where that could not be done.

        ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE and others are results; what
        concerns no partition in particular is raised as `KafkaError`.
        """
        return await elect_leaders(self._cluster, election_type, partitions, timeout_ms=self._timeout_ms)

    # ---- groups -------------------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups by id, of every coordinator; `states` (`Stable`, `Empty`, …) picks some."""
        message = {"states_filter": list(states), "types_filter": []}

        async def ask(node_id: int) -> list[GroupListing]:
            connection = await self._cluster.connection(node_id)
            response = await connection.request(ApiKey.LIST_GROUPS, message)
            _raise(f"broker {node_id}", response)
            return [
                GroupListing(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=optional(group, "group_state", ""),
                    group_type=optional(group, "group_type", ""),
                )
                for group in response.groups
            ]

        async def attempt() -> list[GroupListing]:
            await self._cluster.refresh()
            answers = await asyncio.gather(*(ask(node_id) for node_id in self._cluster.metadata.nodes))
            return sorted((group for groups in answers for group in groups), key=lambda group: group.group_id)

        return await self._retry(attempt)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """One group: its members, and for every partition the committed offset, the end and the lag.

        Raises `KafkaError` GROUP_ID_NOT_FOUND for a group that has neither members nor offsets.
        """

        async def attempt() -> Any:
            connection = await self._cluster.connection(await find_coordinator(self._cluster, group_id))
            message = {"groups": [group_id], "include_authorized_operations": False}
            response = await connection.request(ApiKey.DESCRIBE_GROUPS, message)
            group = response.groups[0]
            if group.error_code != ErrorCode.group_id_not_found:
                _raise(f"group {group_id!r}", group)
            return group

        group = await self._retry(attempt)
        offsets = await fetch_group_offsets(self._cluster, group_id, timeout_ms=self._timeout_ms)
        is_unknown = group.error_code == ErrorCode.group_id_not_found or group.group_state == _NO_SUCH_GROUP
        if is_unknown and not offsets:
            raise KafkaError(ErrorCode.group_id_not_found, f"there is no group {group_id!r}")
        described = group_description(group)
        partitions = await self._group_partitions(offsets, described)
        return described.with_partitions(partitions)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that nobody is in, with their offsets. Raises `KafkaError` NON_EMPTY_GROUP and others."""
        for group_id in group_ids:
            await self._delete_group(group_id)

    async def _delete_group(self, group_id: str) -> None:
        async def attempt() -> None:
            connection = await self._cluster.connection(await find_coordinator(self._cluster, group_id))
            response = await connection.request(ApiKey.DELETE_GROUPS, {"groups_names": [group_id]})
            for group in response.results:
                _raise(f"group {group_id!r}", group)

        await self._retry(attempt)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Have a group forget offsets. Raises the first error, after all: GROUP_SUBSCRIBED_TO_TOPIC and others."""
        message = {
            "group_id": group_id,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": each.partition} for each in some]}
                for topic, some in by_topic(partitions)
            ],
        }

        async def attempt() -> None:
            connection = await self._cluster.connection(await find_coordinator(self._cluster, group_id))
            response = await connection.request(ApiKey.OFFSET_DELETE, message)
            _raise(f"group {group_id!r}", response)
            for topic in response.topics:
                for each in topic.partitions:
                    _raise_about_topic(topic.name, each)

        await self._retry(attempt)

    async def _group_partitions(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupDescription
    ) -> list[GroupPartition]:
        """Every partition that is committed or assigned; without an end where the topic is gone."""
        owners = {partition: member for member in group.members for partition in member.assignment}
        partitions = sorted({*offsets, *owners})
        metadata = await self._metadata(sorted({partition.topic for partition in partitions}))
        existing = [partition for partition in partitions if metadata.leader(partition) is not None]
        ends = await self.list_offsets(dict.fromkeys(existing, LATEST))
        return [
            GroupPartition.of(partition, offsets.get(partition), ends.get(partition), owners.get(partition))
            for partition in partitions
        ]

    # ---- transactions -------------------------------------------------------------------------------------------

    async def describe_producers(self, partition: TopicPartition) -> list[ProducerDescription]:
        """The idempotent producers that a partition's leader remembers, and what they have open (KIP-664)."""
        return await describe_producers(self._cluster, partition, timeout_ms=self._timeout_ms)

    async def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """End a hanging transaction in one partition: one that is open there, and that its coordinator forgot.

        The epochs are what `describe_producers` says, 0 for a coordinator's that it does not know. Raises `KafkaError`
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the producer has gone on since.
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
        """The brokers that are alive, or all that are registered, and the controller."""
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
        """Have a broker forgotten that is away for good, so that no topic is placed on it (KIP-631).

        Raises `KafkaError` BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for a broker that is alive.
        """
        await unregister_broker(self._cluster, broker_id, timeout_ms=self._timeout_ms)

    async def describe_log_dirs(self, broker_id: int) -> list[LogDirDescription]:
        """A broker's data directories, with the sizes of its logs (KIP-113). Raises `KafkaError`."""
        return await describe_log_dirs(self._cluster, broker_id, timeout_ms=self._timeout_ms)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """The configuration of topics and brokers, by key. A broker is asked about itself."""
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
        """Change keys of a topic, of a broker, or of all brokers (by the empty name), while they run (KIP-339).

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

    async def _connection_for(self, resource: ConfigResource) -> Connection:
        """The broker itself, or anyone."""
        if resource.type is ConfigResourceType.BROKER and resource.name.isdecimal():
            return await self._cluster.connection(int(resource.name))
        return await self._cluster.least_loaded_connection()

    # ---- pieces -------------------------------------------------------------------------------------------------

    async def _metadata(self, names: list[str] | None) -> ClusterMetadata:
        """The cluster as it is now, without the cluster view's interest in those topics."""

        async def attempt() -> ClusterMetadata:
            return merge(ClusterMetadata(), await self._cluster.fetch_metadata(names, controller=True))

        return await self._retry(attempt)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retrying(self._cluster, attempt, timeout_ms=self._timeout_ms)


class _UnknownTopicError(KafkaError):
    """A topic that does not exist; final, because nobody is creating it."""

    retriable = False

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


def _raise_about(resource: ConfigResource, answer: Any) -> None:
    """`_raise`, with the resource's name."""
    if resource.type is ConfigResourceType.TOPIC:
        _raise_about_topic(resource.name, answer)
    _raise(f"broker {resource.name}" if resource.name else "all brokers", answer)


def _raise_about_topic(name: str, answer: Any) -> None:
    """`_raise`; that there is no such topic is final: clients try again, but waiting does not bring a topic about."""
    if answer.error_code == ErrorCode.unknown_topic_or_partition:
        raise _UnknownTopicError(name)
    _raise(f"topic {name!r}", answer)


def _raise(what: str, answer: Any) -> None:
    """Raise the error of an answer, if it has one, with the broker's reason."""
    if answer.error_code != ErrorCode.none:
        reason = optional(answer, "error_message", None) or answer.error_code.name.upper()
        raise KafkaError(answer.error_code, f"{what}: {reason}")
