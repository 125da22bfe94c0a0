"""`Admin`, the public class: describes and changes topics, groups, offsets, configurations and brokers."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from odradek.clients.admin import (
    acls,
    configs,
    features,
    group_waits,
    groups,
    log_dirs,
    quotas,
    reassignments,
    rebalances,
    records,
    registrations,
    topics,
    transactions,
    user_credentials,
)
from odradek.clients.admin.descriptions import GroupDescription, NewTopic
from odradek.clients.admin.group_records import GenerationReader
from odradek.clients.arguments import PartitionT, addresses_of, numbers_by_partition
from odradek.clients.cluster import Cluster
from odradek.clients.offsets import OffsetAndTimestamp, list_offsets
from odradek.clients.setting_types import ClientConfig
from odradek.clients.settings import ClientSettings, make_settings
from odradek.model import KafkaError, TopicPartition
from odradek.runtime import Runtime, system_runtime

P = ParamSpec("P")
T = TypeVar("T")
_TIME: Final = "a time in ms, EARLIEST or LATEST"


def _of_cluster(
    function: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """Return the method of `Admin` that is `function` of its cluster."""

    @wraps(function)
    async def method(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await function(self._cluster, *args, **kwargs)

    return method


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

    create_topics = _of_cluster(topics.create_topics)
    delete_topics = _of_cluster(topics.delete_topics)
    create_partitions = _of_cluster(topics.create_partitions)
    list_topics = _of_cluster(topics.list_topics)
    describe_topics = _of_cluster(topics.describe_topics)

    async def list_offsets(
        self, wanted: Mapping[PartitionT, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset of each partition in `wanted`: for `EARLIEST`, `LATEST`, or a time in ms.

        A time gives the first record at or after it, offset -1 if all records are earlier.
        """
        return await list_offsets(self._cluster, numbers_by_partition(_TIME, wanted), isolation_level=isolation_level)

    delete_records = _of_cluster(records.delete_records)

    # ---- replicas and leaders -----------------------------------------------------------------------------------

    alter_partition_reassignments = _of_cluster(reassignments.alter_partition_reassignments)
    list_partition_reassignments = _of_cluster(reassignments.list_partition_reassignments)
    elect_leaders = _of_cluster(reassignments.elect_leaders)

    # ---- groups -------------------------------------------------------------------------------------------------

    list_groups = _of_cluster(groups.list_groups)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describe one group: members, offsets and lags. Raises `KafkaError` GROUP_ID_NOT_FOUND and others."""
        found = (await self.describe_groups([group_id]))[group_id]
        if isinstance(found, KafkaError):
            raise found
        return found

    describe_groups = _of_cluster(groups.describe_groups)

    def generation_reader(self, group_id: str) -> GenerationReader:
        """Return a reader of a classic group's generation in `__consumer_offsets`; no admin response has it."""
        return GenerationReader(self._cluster, group_id)

    group_waits = _of_cluster(group_waits.group_waits)
    rebalance_history = _of_cluster(rebalances.rebalance_history)
    list_group_offsets = _of_cluster(groups.list_group_offsets)
    alter_group_offsets = _of_cluster(groups.alter_group_offsets)
    delete_groups = _of_cluster(groups.delete_groups)
    remove_group_members = _of_cluster(groups.remove_group_members)
    delete_group_offsets = _of_cluster(groups.delete_group_offsets)

    # ---- transactions (KIP-664) ---------------------------------------------------------------------------------

    list_transactions = _of_cluster(transactions.list_transactions)
    describe_transactions = _of_cluster(transactions.describe_transactions)
    terminate_transaction = _of_cluster(transactions.terminate_transaction)
    find_hanging_transactions = _of_cluster(transactions.find_hanging_transactions)
    describe_producers = _of_cluster(transactions.describe_producers)
    abort_transaction = _of_cluster(transactions.abort_transaction)

    # ---- the cluster and its configuration ----------------------------------------------------------------------

    describe_cluster = _of_cluster(registrations.describe_cluster)
    unregister_broker = _of_cluster(registrations.unregister_broker)
    describe_log_dirs = _of_cluster(log_dirs.describe_log_dirs)
    alter_replica_log_dirs = _of_cluster(log_dirs.alter_replica_log_dirs)
    describe_broker_versions = _of_cluster(features.describe_broker_versions)
    update_features = _of_cluster(features.update_features)
    list_config_resources = _of_cluster(configs.list_config_resources)
    create_acls = _of_cluster(acls.create_acls)
    describe_acls = _of_cluster(acls.describe_acls)
    delete_acls = _of_cluster(acls.delete_acls)
    describe_configs = _of_cluster(configs.describe_configs)
    alter_configs = _of_cluster(configs.alter_configs)

    # ---- quotas -------------------------------------------------------------------------------------------------

    describe_client_quotas = _of_cluster(quotas.describe_client_quotas)
    alter_client_quotas = _of_cluster(quotas.alter_client_quotas)

    # ---- users --------------------------------------------------------------------------------------------------

    describe_user_scram_credentials = _of_cluster(user_credentials.describe_user_scram_credentials)
    alter_user_scram_credentials = _of_cluster(user_credentials.alter_user_scram_credentials)
