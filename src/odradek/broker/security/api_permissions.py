"""The operations that each API authorizes, as Kafka's `KafkaApis` and its documentation list them.

Every served API has an entry. A handler may authorize only what its API's entry lists.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.protocol.api import BETWEEN_BROKERS, ApiKey
from odradek.security import AclOperation, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


class Permission(NamedTuple):
    """An operation on resources of one type."""

    operation: AclOperation
    resource_type: ResourceType


class ApiPermissions(NamedTuple):
    """The permissions of one API.

    Before the handler is called, admission refuses a request if its principal has none of the permissions in `request`,
    on the cluster or on the request's group. The handler checks `items`, for each resource that the request names.
    """

    request: tuple[Permission, ...] = ()
    items: tuple[Permission, ...] = ()


_CLUSTER_ACTION: Final = Permission(AclOperation.CLUSTER_ACTION, _CLUSTER)
_ALTER_CLUSTER: Final = Permission(AclOperation.ALTER, _CLUSTER)
_DESCRIBE_CLUSTER: Final = Permission(AclOperation.DESCRIBE, _CLUSTER)
_DESCRIBE_TOPIC: Final = Permission(AclOperation.DESCRIBE, _TOPIC)
_READ_TOPIC: Final = Permission(AclOperation.READ, _TOPIC)
_WRITE_TOPIC: Final = Permission(AclOperation.WRITE, _TOPIC)
_DELETE_TOPIC: Final = Permission(AclOperation.DELETE, _TOPIC)
_CREATE: Final = (Permission(AclOperation.CREATE, _CLUSTER), Permission(AclOperation.CREATE, _TOPIC))
_READ_GROUP: Final = Permission(AclOperation.READ, _GROUP)
_DESCRIBE_GROUP: Final = Permission(AclOperation.DESCRIBE, _GROUP)
_DELETE_GROUP: Final = Permission(AclOperation.DELETE, _GROUP)
_WRITE_TRANSACTIONAL_ID: Final = Permission(AclOperation.WRITE, _TRANSACTIONAL_ID)
_DESCRIBE_TRANSACTIONAL_ID: Final = Permission(AclOperation.DESCRIBE, _TRANSACTIONAL_ID)


def _on_config_resources(operation: AclOperation) -> tuple[Permission, ...]:
    return tuple(Permission(operation, each) for each in (_CLUSTER, _TOPIC, _GROUP))


PERMISSIONS: Final[Mapping[ApiKey, ApiPermissions]] = {
    ApiKey.PRODUCE: ApiPermissions(items=(_WRITE_TOPIC, _WRITE_TRANSACTIONAL_ID)),
    ApiKey.FETCH: ApiPermissions(items=(_READ_TOPIC, _CLUSTER_ACTION)),
    ApiKey.LIST_OFFSETS: ApiPermissions(items=(_DESCRIBE_TOPIC,)),
    ApiKey.METADATA: ApiPermissions(items=(_DESCRIBE_TOPIC, _DESCRIBE_CLUSTER, *_CREATE)),
    ApiKey.UPDATE_METADATA: ApiPermissions(request=(_CLUSTER_ACTION,)),
    ApiKey.CONTROLLED_SHUTDOWN: ApiPermissions(request=(_CLUSTER_ACTION,)),
    ApiKey.OFFSET_COMMIT: ApiPermissions(items=(_READ_GROUP, _READ_TOPIC)),
    ApiKey.OFFSET_FETCH: ApiPermissions(items=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    ApiKey.FIND_COORDINATOR: ApiPermissions(items=(_DESCRIBE_GROUP, _DESCRIBE_TRANSACTIONAL_ID)),
    ApiKey.JOIN_GROUP: ApiPermissions(request=(_READ_GROUP,)),
    ApiKey.HEARTBEAT: ApiPermissions(request=(_READ_GROUP,)),
    ApiKey.LEAVE_GROUP: ApiPermissions(request=(_READ_GROUP,)),
    ApiKey.SYNC_GROUP: ApiPermissions(request=(_READ_GROUP,)),
    ApiKey.DESCRIBE_GROUPS: ApiPermissions(items=(_DESCRIBE_GROUP,)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiPermissions(request=(_READ_GROUP,), items=(_DESCRIBE_TOPIC,)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiPermissions(items=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    ApiKey.LIST_GROUPS: ApiPermissions(items=(_DESCRIBE_CLUSTER, _DESCRIBE_GROUP)),
    ApiKey.SASL_HANDSHAKE: ApiPermissions(),
    ApiKey.SASL_AUTHENTICATE: ApiPermissions(),
    ApiKey.API_VERSIONS: ApiPermissions(),
    ApiKey.CREATE_TOPICS: ApiPermissions(
        items=(*_CREATE, Permission(AclOperation.DESCRIBE_CONFIGS, _TOPIC), _DESCRIBE_TOPIC)
    ),
    ApiKey.DELETE_TOPICS: ApiPermissions(items=(_DELETE_TOPIC,)),
    ApiKey.DELETE_RECORDS: ApiPermissions(items=(_DELETE_TOPIC,)),
    ApiKey.INIT_PRODUCER_ID: ApiPermissions(
        items=(
            _WRITE_TRANSACTIONAL_ID,
            Permission(AclOperation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID),
            Permission(AclOperation.IDEMPOTENT_WRITE, _CLUSTER),
            _WRITE_TOPIC,
        )
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiPermissions(items=(_WRITE_TRANSACTIONAL_ID, _WRITE_TOPIC, _CLUSTER_ACTION)),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiPermissions(items=(_WRITE_TRANSACTIONAL_ID, _READ_GROUP)),
    ApiKey.END_TXN: ApiPermissions(items=(_WRITE_TRANSACTIONAL_ID,)),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiPermissions(items=(_DESCRIBE_TRANSACTIONAL_ID, _DESCRIBE_TOPIC)),
    ApiKey.LIST_TRANSACTIONS: ApiPermissions(items=(_DESCRIBE_TRANSACTIONAL_ID,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiPermissions(items=(_CLUSTER_ACTION, _DESCRIBE_TOPIC)),
    ApiKey.TXN_OFFSET_COMMIT: ApiPermissions(items=(_WRITE_TRANSACTIONAL_ID, _READ_GROUP, _READ_TOPIC)),
    ApiKey.WRITE_TXN_MARKERS: ApiPermissions(request=(_ALTER_CLUSTER, _CLUSTER_ACTION)),
    ApiKey.DESCRIBE_ACLS: ApiPermissions(request=(_DESCRIBE_CLUSTER,)),
    ApiKey.CREATE_ACLS: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.DELETE_ACLS: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.DESCRIBE_CONFIGS: ApiPermissions(items=_on_config_resources(AclOperation.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CONFIGS: ApiPermissions(items=_on_config_resources(AclOperation.ALTER_CONFIGS)),
    ApiKey.DESCRIBE_LOG_DIRS: ApiPermissions(request=(_DESCRIBE_CLUSTER,)),
    ApiKey.CREATE_PARTITIONS: ApiPermissions(items=(Permission(AclOperation.ALTER, _TOPIC),)),
    ApiKey.DELETE_GROUPS: ApiPermissions(items=(_DELETE_GROUP,)),
    ApiKey.ELECT_LEADERS: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiPermissions(items=_on_config_resources(AclOperation.ALTER_CONFIGS)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiPermissions(request=(_DESCRIBE_CLUSTER,)),
    ApiKey.OFFSET_DELETE: ApiPermissions(request=(_DELETE_GROUP,), items=(_READ_TOPIC,)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiPermissions(request=(Permission(AclOperation.DESCRIBE_CONFIGS, _CLUSTER),)),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiPermissions(request=(Permission(AclOperation.ALTER_CONFIGS, _CLUSTER),)),
    ApiKey.ALTER_PARTITION: ApiPermissions(request=(_CLUSTER_ACTION,)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiPermissions(request=(_DESCRIBE_CLUSTER,)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.DESCRIBE_CLUSTER: ApiPermissions(items=(_DESCRIBE_CLUSTER,)),
    ApiKey.DESCRIBE_PRODUCERS: ApiPermissions(items=(_READ_TOPIC,)),
    ApiKey.UNREGISTER_BROKER: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.UPDATE_FEATURES: ApiPermissions(request=(_ALTER_CLUSTER,)),
    ApiKey.LIST_CONFIG_RESOURCES: ApiPermissions(request=(Permission(AclOperation.DESCRIBE_CONFIGS, _CLUSTER),)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiPermissions(items=(_DESCRIBE_TOPIC,)),
}
_BROKERS_FROM: Final = 4
"""The version of AddPartitionsToTxn from which only brokers may send it."""


def request_permissions(api_key: int, version: int) -> tuple[Permission, ...]:
    """Return the permissions of which a principal needs one for the request as a whole."""
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= _BROKERS_FROM:
        return (_CLUSTER_ACTION,)
    return PERMISSIONS[ApiKey(api_key)].request


def is_of_brokers(api_key: int, version: int) -> bool:
    """Return whether only brokers send such a request, which then needs a proof."""
    return api_key in BETWEEN_BROKERS or (api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= _BROKERS_FROM)


def is_decided_by_header(api_key: int, version: int) -> bool:
    """Return whether a request as a whole needs a permission on the cluster, and not on what its body names."""
    permissions = request_permissions(api_key, version)
    return bool(permissions) and all(each.resource_type is _CLUSTER for each in permissions)
