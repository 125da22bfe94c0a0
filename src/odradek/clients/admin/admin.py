"""`Admin`, the public class: describes and changes topics, groups, offsets, configurations and brokers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from odradek.clients.admin import reassignments, transactions, user_credentials
from odradek.clients.admin.acls import create_acls, delete_acls, describe_acls
from odradek.clients.admin.configs import alter_configs, describe_configs, list_config_resources
from odradek.clients.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    GroupDescription,
    GroupListing,
    NewTopic,
    TopicDescription,
)
from odradek.clients.admin.features import BrokerVersions, describe_broker_versions, update_features
from odradek.clients.admin.group_records import GenerationReader
from odradek.clients.admin.group_waits import GroupWaits, group_waits
from odradek.clients.admin.groups import (
    alter_group_offsets,
    delete_group_offsets,
    delete_groups,
    describe_groups,
    list_group_offsets,
    list_groups,
    remove_group_members,
)
from odradek.clients.admin.log_dirs import LogDirDescription, describe_log_dirs
from odradek.clients.admin.quotas import alter_client_quotas, describe_client_quotas
from odradek.clients.admin.rebalances import rebalance_history
from odradek.clients.admin.records import delete_records
from odradek.clients.admin.registrations import describe_cluster, unregister_broker
from odradek.clients.admin.topics import create_partitions, create_topics, delete_topics, describe_topics, list_topics
from odradek.clients.arguments import (
    Partition,
    PartitionT,
    addresses_of,
    by_partition,
    instances_of,
    names_of,
    numbers_by_partition,
    partition_of,
    partitions_of,
)
from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.offsets import OffsetAndTimestamp, list_offsets
from odradek.clients.setting_types import ClientConfig
from odradek.clients.settings import ClientSettings, make_settings
from odradek.config import Alteration
from odradek.model import KafkaError, TopicPartition
from odradek.runtime import Runtime, system_runtime
from odradek.security import ALL_ACLS, AclBinding, AclFilter
from odradek.security.quotas import QuotaEntity

T = TypeVar("T")
_TIME: Final = "a time in ms, EARLIEST or LATEST"


class Admin:
    """An admin client for a Kafka cluster.

        async with Admin("localhost:9092") as admin:
            await admin.create_topic("flights", partitions=8)

    Settings are those of `odradek.clients.settings.ClientSettings`. Calls retry retriable errors for `timeout_ms`
    (`default_api_timeout_ms` by default, 60 s), then raise `KafkaError` with the broker's reason, or
    `UnavailableError`. A change of several resources that fails for some of them changes the others, and raises a
    `odradek.clients.admin.results.RefusedError` with the `errors` by resource.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        runtime: Runtime | None = None,
        timeout_ms: int | None = None,
        **settings: Unpack[ClientConfig],
    ) -> None:
        made = make_settings(ClientSettings, {**settings, "bootstrap_servers": addresses_of(bootstrap_servers)})
        if timeout_ms is not None:
            made = replace(made, default_api_timeout_ms=timeout_ms)
        self._cluster = Cluster(made, runtime or system_runtime())

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. Raises `UnavailableError` if no broker answers in time."""
        try:
            await self._cluster.start()
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
        configs: Mapping[str, Any] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create one topic; -1 means the cluster's default. Raises `KafkaError` TOPIC_ALREADY_EXISTS and others."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {})
        await self.create_topics([topic], validate_only=validate_only)

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or with `validate_only` only check whether they can be created.

        Raises `KafkaError` for a single topic or a name given twice, `RefusedTopicsError` for some of several topics.
        """
        await create_topics(self._cluster, instances_of(NewTopic, topics), validate_only=validate_only)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and their records.

        Raises `KafkaError` if a single topic is refused, `RefusedTopicsError` if some of several topics are refused.
        """
        await delete_topics(self._cluster, names_of(names))

    async def create_partitions(
        self,
        name: str,
        total: int,
        *,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase a topic's number of partitions to `total`; `assignments` has the replicas of each new one, in order.

        Afterwards a key may belong to another partition. Raises `KafkaError` INVALID_PARTITIONS and others.
        """
        await create_partitions(self._cluster, name, total, assignments=assignments, validate_only=validate_only)

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """Return the descriptions of all topics (internal ones only with `include_internal`), sorted by name."""
        return await list_topics(self._cluster, include_internal=include_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Describe topics with partitions, leaders and replicas. Raises `KafkaError` for an unknown topic.

        Brokers with DescribeTopicPartitions get a request for every 2,000 partitions.
        """
        return await describe_topics(self._cluster, names_of(names))

    async def list_offsets(
        self, wanted: Mapping[PartitionT, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset of each partition in `wanted`: for `EARLIEST`, `LATEST`, or a time in ms.

        A time gives the first record at or after it, offset -1 if all records are earlier.
        """
        return await list_offsets(self._cluster, numbers_by_partition(_TIME, wanted), isolation_level=isolation_level)

    async def delete_records(self, before: Mapping[PartitionT, int]) -> dict[TopicPartition, int]:
        """Delete each partition's records before an offset; -1 means the high watermark (KIP-107).

        Returns the new first offsets. Raises `RefusedPartitionsError` (OFFSET_OUT_OF_RANGE and others).
        """
        return await delete_records(self._cluster, numbers_by_partition("an offset", before))

    # ---- replicas and leaders -----------------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self,
        targets: Mapping[PartitionT, Collection[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Start to reassign partitions to `targets`: replicas, the preferred leader first; None cancels a reassignment.

        Old replicas are removed when the new ones are in sync; `list_partition_reassignments` shows the progress.
        Raises `RefusedPartitionsError` for refused partitions; the others are started.
        """
        await reassignments.alter_partition_reassignments(
            self._cluster, by_partition(targets), allow_replication_factor_change=allow_replication_factor_change
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, reassignments.PartitionReassignment]:
        """Return the reassignments in progress, of `partitions` or of all, sorted by partition."""
        chosen = None if partitions is None else partitions_of(partitions)
        return await reassignments.list_partition_reassignments(self._cluster, chosen)

    async def elect_leaders(
        self, election_type: reassignments.ElectionType, partitions: Iterable[Partition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of `partitions`, or of all that need an election; return None or an error for each.

        ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE and others are results.
        Raises `KafkaError` for an error of the whole request.
        """
        chosen = None if partitions is None else partitions_of(partitions)
        return await reassignments.elect_leaders(self._cluster, election_type, chosen)

    # ---- groups -------------------------------------------------------------------------------------------------

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by id; filter by `states` (`Stable`, …) and `types` (`classic`, …).

        Raises `KafkaError` UNSUPPORTED_VERSION if a broker is too old for a filter.
        """
        return await list_groups(self._cluster, states=names_of(states), types=names_of(types))

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describe one group: members, offsets and lags. Raises `KafkaError` GROUP_ID_NOT_FOUND and others."""
        found = (await self.describe_groups([group_id]))[group_id]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe each group: its members, and committed offset, end offset and lag by partition; or return its error.

        A group that its coordinator does not know and that has no offsets gets the error GROUP_ID_NOT_FOUND.
        """
        return await describe_groups(self._cluster, names_of(group_ids))

    def generation_reader(self, group_id: str) -> GenerationReader:
        """Return a reader of a classic group's generation in `__consumer_offsets`; no admin response has it."""
        return GenerationReader(self._cluster, group_id)

    async def group_waits(self, group_id: str) -> GroupWaits:
        """Return each member's epoch, the partitions that it must revoke, and those that it waits for.

        Of a classic group, only its members, their assignments and its generation are known. Raises `KafkaError`
        GROUP_ID_NOT_FOUND and others.
        """
        return await group_waits(self._cluster, group_id)

    async def rebalance_history(
        self, group_id: str | None, *, limit: int = 20, since_ms: int | None = None
    ) -> list[dict[str, Any]]:
        """Return a group's (None: all groups') last `limit` rebalances, the oldest first, as JSON objects.

        They are those of Odradek's rebalance journal; the list is empty if the cluster has none. With `since_ms` (ms
        since 1970), older ones are not read.
        """
        return await rebalance_history(self._cluster, group_id, limit=limit, since_ms=since_ms)

    async def list_group_offsets(
        self, group_ids: Iterable[str], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
        """Return each group's committed offsets by partition (empty for an unknown group), or its error.

        With `require_stable`, waits for open transactions that have offsets to commit (KIP-447).
        """
        return await list_group_offsets(self._cluster, names_of(group_ids), require_stable=require_stable)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[PartitionT, int | OffsetAndMetadata]) -> None:
        """Commit offsets for a group without members; an unknown group is created.

        Raises `KafkaError` UNKNOWN_MEMBER_ID if the group has members, `RefusedPartitionsError` for refused partitions
        after the others were committed.
        """
        wanted = {
            partition: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
            for partition, each in by_partition(offsets).items()
        }
        await alter_group_offsets(self._cluster, group_id, wanted)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, with their offsets.

        Raises `RefusedGroupsError` (NON_EMPTY_GROUP and others) after the other groups were deleted.
        """
        await delete_groups(self._cluster, names_of(group_ids))

    async def remove_group_members(
        self,
        group_id: str,
        *,
        member_ids: Iterable[str] = (),
        group_instance_ids: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> None:
        """Remove members of a group, static members by their `group.instance.id` (KIP-345).

        A running member joins again. Raises `RefusedMembersError` (UNKNOWN_MEMBER_ID and others) after the other
        members were removed.
        """
        await remove_group_members(
            self._cluster,
            group_id,
            member_ids=names_of(member_ids),
            group_instance_ids=names_of(group_instance_ids),
            reason=reason,
        )

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[Partition]) -> None:
        """Delete a group's committed offsets of `partitions`.

        Raises `RefusedPartitionsError` (GROUP_SUBSCRIBED_TO_TOPIC and others) after the other offsets were deleted, or
        the `KafkaError` of the group.
        """
        await delete_group_offsets(self._cluster, group_id, partitions_of(partitions))

    # ---- transactions (KIP-664) ---------------------------------------------------------------------------------

    async def list_transactions(self, *, states: Iterable[str] = ()) -> list[transactions.TransactionListing]:
        """Return the transactional ids of all coordinators, sorted; filter by `states` (`Ongoing`, …)."""
        return await transactions.list_transactions(self._cluster, states=states)

    async def describe_transactions(
        self, ids: Iterable[str]
    ) -> dict[str, transactions.TransactionDescription | KafkaError]:
        """Return the last transaction of each transactional id, or the `KafkaError` of that id."""
        return await transactions.describe_transactions(self._cluster, names_of(ids))

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Abort the id's open transaction, also a prepared one, and fence its producer (KIP-939)."""
        await transactions.terminate_transaction(self._cluster, transactional_id)

    async def find_hanging_transactions(self, partitions: Iterable[Partition]) -> list[transactions.HangingTransaction]:
        """Return the transactions that are open in a partition and that no coordinator will end."""
        chosen = partitions_of(partitions)
        return await transactions.find_hanging_transactions(self._cluster, chosen)

    async def describe_producers(self, partition: Partition) -> list[transactions.ProducerDescription]:
        """Return the idempotent producers that the partition's leader knows, and their open transactions (KIP-664)."""
        return await transactions.describe_producers(self._cluster, partition_of(partition))

    async def abort_transaction(
        self, partition: Partition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Abort a hanging transaction, which is open in `partition` and unknown to its coordinator.

        Take the epochs from `describe_producers`, 0 for an unknown coordinator epoch. Raises `KafkaError`
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if an epoch is older than that in the partition.
        """
        epochs = (producer_epoch, coordinator_epoch)
        await transactions.abort_transaction(self._cluster, partition_of(partition), producer_id, *epochs)

    # ---- the cluster and its configuration ----------------------------------------------------------------------

    async def describe_cluster(self, *, include_fenced_brokers: bool = False) -> ClusterDescription:
        """Return the controller and the live brokers; `include_fenced_brokers` adds registered brokers not alive."""
        return await describe_cluster(self._cluster, include_fenced_brokers=include_fenced_brokers)

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker that is permanently gone, so that it gets no replicas (KIP-631).

        Raises `KafkaError` BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for a broker that is alive.
        """
        await unregister_broker(self._cluster, broker_id)

    async def describe_log_dirs(
        self, broker_id: int, partitions: Iterable[Partition] | None = None
    ) -> list[LogDirDescription]:
        """Return a broker's log directories with the size of each log in bytes, of `partitions` or of all (KIP-113)."""
        chosen = None if partitions is None else partitions_of(partitions)
        return await describe_log_dirs(self._cluster, broker_id, chosen)

    async def describe_broker_versions(self, broker_id: int | None = None) -> BrokerVersions:
        """Return the APIs and features that a broker, by default any, supports (KIP-584)."""
        return await describe_broker_versions(self._cluster, broker_id)

    async def update_features(self, upgrades: Mapping[str, int], downgrades: Mapping[str, int] | None = None) -> None:
        """Finalize higher and lower levels of features by name (KIP-584): all of them, or none."""
        await update_features(self._cluster, upgrades, downgrades or {})

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
    ) -> list[ConfigResource]:
        """Return the resources of these types: all topics, the live brokers, and groups with overrides (KIP-1142).

        Raises `KafkaError` UNSUPPORTED_VERSION from brokers before Kafka 4.1.
        """
        return await list_config_resources(self._cluster, types)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs (KIP-140); one that exists is no error. Raises `RefusedAclsError` if some are refused."""
        await create_acls(self._cluster, instances_of(AclBinding, bindings))

    async def describe_acls(self, wanted: AclFilter = ALL_ACLS) -> list[AclBinding]:
        """Return the ACLs that the filter matches, sorted; all by default."""
        return await describe_acls(self._cluster, wanted)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Remove the ACLs that any of the filters matches, and return them, sorted."""
        return await delete_acls(self._cluster, instances_of(AclFilter, filters))

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Return each resource's configuration entries, sorted by name. Raises `KafkaError` if one is refused."""
        return await describe_configs(
            self._cluster,
            instances_of(ConfigResource, resources),
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    async def alter_configs(
        self, resource: ConfigResource, alterations: Iterable[Alteration], *, validate_only: bool = False
    ) -> None:
        """Change dynamic configurations of one resource; a broker resource with name "" means all brokers (KIP-339).

        If it raises `KafkaError` (INVALID_CONFIG, INVALID_REQUEST and others), nothing is changed.
        """
        (checked,) = instances_of(ConfigResource, [resource])
        await alter_configs(self._cluster, checked, instances_of(Alteration, alterations), validate_only=validate_only)

    # ---- quotas -------------------------------------------------------------------------------------------------

    async def describe_client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of users, client ids and IP addresses by Kafka's keys (KIP-546)."""
        return await describe_client_quotas(self._cluster)

    async def alter_client_quotas(
        self, entity: QuotaEntity, quotas: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set quotas of an entity, and remove those that are None. An empty name in it stands for the default.

        If it raises `KafkaError` (INVALID_REQUEST and others), nothing is changed.
        """
        (checked,) = instances_of(QuotaEntity, [entity])
        await alter_client_quotas(self._cluster, checked, quotas, validate_only=validate_only)

    # ---- users --------------------------------------------------------------------------------------------------

    async def describe_user_scram_credentials(
        self, users: Iterable[str] = ()
    ) -> dict[str, list[user_credentials.ScramCredentialInfo]]:
        """Return the SCRAM credentials of users, by default of all that have some (KIP-554)."""
        return await user_credentials.describe_user_scram_credentials(self._cluster, names_of(users))

    async def alter_user_scram_credentials(
        self, alterations: Iterable[user_credentials.UserScramCredentialAlteration]
    ) -> None:
        """Set and delete SCRAM credentials of users (KIP-554).

        Raises `RefusedUsersError` with the error of each refused user; the other users are altered.
        """
        await user_credentials.alter_user_scram_credentials(self._cluster, list(alterations))
