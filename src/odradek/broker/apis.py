"""The APIs that a broker serves: a row of `APIS` has all that differs between them and is not in their schemas.

A new API is a row and a module of `handlers`, named as its key.
"""

from collections.abc import Mapping
from enum import Enum, Flag, auto
from typing import Final, NamedTuple

from odradek.protocol.api import BETWEEN_BROKERS, ApiKey, schema_versions
from odradek.security import AclOperation, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


class Permission(NamedTuple):
    """An operation on resources of one type."""

    operation: AclOperation
    resource_type: ResourceType


class ErrorPlace(Enum):
    """Where the response to a request that is refused as a whole has its error code."""

    OUTERMOST = auto()
    """In the outermost struct that has a field for it, as in Kafka."""
    INNERMOST = auto()
    """Per topic or partition, where clients read it."""
    EVERYWHERE = auto()
    """In each struct, as clients look up their entries in the response."""
    NO_ENTRIES = auto()
    """In the response itself; clients of versions without a field for it know it by the lack of entries."""


class Trait(Flag):
    """Peculiarities of an API."""

    RAW = auto()
    """Its handler takes and returns frames."""
    PIPELINED = auto()
    """Its requests are served before earlier ones of their connection are answered."""
    ENDS_WITH_CONNECTION = auto()
    """The work on a request is cancelled when its connection closes."""
    FROM_ZERO = auto()
    """ApiVersions lists it from version 0, though earlier versions than the served ones are refused.

    Otherwise some releases of librdkafka silently stop compressing (KAFKA-18659), and others do without SASL.
    """
    AUTHENTICATION = auto()
    """Clients send it before they are authenticated."""
    UNCHARGED = auto()
    """No quota is charged; the handler of Fetch charges those of consumers (`ClientQuotas.begin_fetch`)."""
    PROVED_BY_BROKERS = auto()
    """Brokers send it with a proof (`security.request_proofs`); clients do not, or with other fields or versions."""


class Api(NamedTuple):
    """One API, with the permissions that Kafka's `KafkaApis` and its documentation list.

    Before the handler is called, admission refuses a request if its principal has none of the permissions in `request`,
    on the cluster or on the request's group. The handler checks `items`, for each resource that the request names, and
    may check no others. Only brokers send versions from `brokers_from`.
    """

    key: ApiKey
    request: tuple[Permission, ...] = ()
    items: tuple[Permission, ...] = ()
    error_place: ErrorPlace = ErrorPlace.OUTERMOST
    brokers_from: int | None = None
    traits: Trait = Trait(0)

    @property
    def module(self) -> str:
        """The name of the handler's module."""
        return self.key.name.lower()

    @property
    def served(self) -> range:
        """The versions that are served."""
        return schema_versions(self.key)

    @property
    def advertised(self) -> range:
        """The versions that ApiVersions lists."""
        if self.key in BETWEEN_BROKERS:
            return range(0)
        return range(self.served.stop) if Trait.FROM_ZERO in self.traits else self.served

    def is_of_brokers(self, version: int) -> bool:
        """Return whether only brokers send such a request, which then needs a proof."""
        return self.brokers_from is not None and version >= self.brokers_from

    def request_permissions(self, version: int) -> tuple[Permission, ...]:
        """Return the permissions of which a principal needs one for the request as a whole."""
        return (_CLUSTER_ACTION,) if self.is_of_brokers(version) else self.request

    def is_decided_by_header(self, version: int) -> bool:
        """Return whether a request as a whole needs a permission on the cluster, and not on what its body names."""
        permissions = self.request_permissions(version)
        return bool(permissions) and all(each.resource_type is _CLUSTER for each in permissions)


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


_ROWS: Final = (
    Api(
        ApiKey.PRODUCE,
        items=(_WRITE_TOPIC, _WRITE_TRANSACTIONAL_ID),
        traits=Trait.RAW | Trait.PIPELINED | Trait.FROM_ZERO,
    ),
    Api(
        ApiKey.FETCH,
        items=(_READ_TOPIC, _CLUSTER_ACTION),
        error_place=ErrorPlace.INNERMOST,
        traits=Trait.RAW | Trait.PIPELINED | Trait.ENDS_WITH_CONNECTION | Trait.UNCHARGED | Trait.PROVED_BY_BROKERS,
    ),
    Api(ApiKey.LIST_OFFSETS, items=(_DESCRIBE_TOPIC,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(
        ApiKey.METADATA,
        items=(_DESCRIBE_TOPIC, _DESCRIBE_CLUSTER, *_CREATE),
        error_place=ErrorPlace.INNERMOST,
        traits=Trait.RAW,
    ),
    Api(
        ApiKey.UPDATE_METADATA,
        request=(_CLUSTER_ACTION,),
        brokers_from=0,
        traits=Trait.UNCHARGED | Trait.PROVED_BY_BROKERS,
    ),
    Api(
        ApiKey.CONTROLLED_SHUTDOWN,
        request=(_CLUSTER_ACTION,),
        brokers_from=0,
        traits=Trait.UNCHARGED | Trait.PROVED_BY_BROKERS,
    ),
    Api(ApiKey.OFFSET_COMMIT, items=(_READ_GROUP, _READ_TOPIC)),
    Api(ApiKey.OFFSET_FETCH, items=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.FIND_COORDINATOR, items=(_DESCRIBE_GROUP, _DESCRIBE_TRANSACTIONAL_ID)),
    Api(ApiKey.JOIN_GROUP, request=(_READ_GROUP,)),
    Api(ApiKey.HEARTBEAT, request=(_READ_GROUP,)),
    Api(ApiKey.LEAVE_GROUP, request=(_READ_GROUP,)),
    Api(ApiKey.SYNC_GROUP, request=(_READ_GROUP,)),
    Api(ApiKey.DESCRIBE_GROUPS, items=(_DESCRIBE_GROUP,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.LIST_GROUPS, items=(_DESCRIBE_CLUSTER, _DESCRIBE_GROUP), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.SASL_HANDSHAKE, traits=Trait.FROM_ZERO | Trait.AUTHENTICATION | Trait.UNCHARGED),
    Api(ApiKey.API_VERSIONS, traits=Trait.RAW | Trait.AUTHENTICATION),
    Api(ApiKey.CREATE_TOPICS, items=(*_CREATE, Permission(AclOperation.DESCRIBE_CONFIGS, _TOPIC), _DESCRIBE_TOPIC)),
    Api(ApiKey.DELETE_TOPICS, items=(_DELETE_TOPIC,)),
    Api(ApiKey.DELETE_RECORDS, items=(_DELETE_TOPIC,)),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        items=(
            _WRITE_TRANSACTIONAL_ID,
            Permission(AclOperation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID),
            Permission(AclOperation.IDEMPOTENT_WRITE, _CLUSTER),
            _WRITE_TOPIC,
        ),
    ),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, items=(_CLUSTER_ACTION, _DESCRIBE_TOPIC), traits=Trait.ENDS_WITH_CONNECTION),
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        items=(_WRITE_TRANSACTIONAL_ID, _WRITE_TOPIC, _CLUSTER_ACTION),
        brokers_from=4,
        traits=Trait.PROVED_BY_BROKERS,
    ),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, items=(_WRITE_TRANSACTIONAL_ID, _READ_GROUP)),
    Api(ApiKey.END_TXN, items=(_WRITE_TRANSACTIONAL_ID,)),
    Api(ApiKey.WRITE_TXN_MARKERS, request=(_ALTER_CLUSTER, _CLUSTER_ACTION), traits=Trait.UNCHARGED),
    Api(ApiKey.TXN_OFFSET_COMMIT, items=(_WRITE_TRANSACTIONAL_ID, _READ_GROUP, _READ_TOPIC)),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        items=_on_config_resources(AclOperation.DESCRIBE_CONFIGS),
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(ApiKey.ALTER_CONFIGS, items=_on_config_resources(AclOperation.ALTER_CONFIGS)),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, request=(_ALTER_CLUSTER,)),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        request=(_DESCRIBE_CLUSTER,),
        error_place=ErrorPlace.NO_ENTRIES,
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(ApiKey.DESCRIBE_ACLS, request=(_DESCRIBE_CLUSTER,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.CREATE_ACLS, request=(_ALTER_CLUSTER,)),
    Api(ApiKey.DELETE_ACLS, request=(_ALTER_CLUSTER,)),
    Api(ApiKey.SASL_AUTHENTICATE, traits=Trait.AUTHENTICATION | Trait.UNCHARGED),
    Api(ApiKey.CREATE_PARTITIONS, items=(Permission(AclOperation.ALTER, _TOPIC),)),
    Api(ApiKey.DELETE_GROUPS, items=(_DELETE_GROUP,)),
    Api(ApiKey.ELECT_LEADERS, request=(_ALTER_CLUSTER,), error_place=ErrorPlace.EVERYWHERE),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, items=_on_config_resources(AclOperation.ALTER_CONFIGS)),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request=(_ALTER_CLUSTER,), error_place=ErrorPlace.EVERYWHERE),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        request=(_DESCRIBE_CLUSTER,),
        error_place=ErrorPlace.EVERYWHERE,
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(ApiKey.OFFSET_DELETE, request=(_DELETE_GROUP,), items=(_READ_TOPIC,)),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        request=(Permission(AclOperation.DESCRIBE_CONFIGS, _CLUSTER),),
        error_place=ErrorPlace.NO_ENTRIES,
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        request=(Permission(AclOperation.ALTER_CONFIGS, _CLUSTER),),
        error_place=ErrorPlace.EVERYWHERE,
    ),
    Api(
        ApiKey.ALTER_PARTITION,
        request=(_CLUSTER_ACTION,),
        brokers_from=0,
        traits=Trait.UNCHARGED | Trait.PROVED_BY_BROKERS,
    ),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request=(_DESCRIBE_CLUSTER,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request=(_ALTER_CLUSTER,)),
    Api(ApiKey.DESCRIBE_CLUSTER, items=(_DESCRIBE_CLUSTER,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.DESCRIBE_PRODUCERS, items=(_READ_TOPIC,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.UNREGISTER_BROKER, request=(_ALTER_CLUSTER,)),
    Api(ApiKey.UNREGISTER_CONTROLLER, request=(_ALTER_CLUSTER,)),
    Api(ApiKey.UPDATE_FEATURES, request=(_ALTER_CLUSTER,)),
    Api(
        ApiKey.DESCRIBE_TRANSACTIONS,
        items=(_DESCRIBE_TRANSACTIONAL_ID, _DESCRIBE_TOPIC),
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(ApiKey.LIST_TRANSACTIONS, items=(_DESCRIBE_TRANSACTIONAL_ID,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, request=(_READ_GROUP,), items=(_DESCRIBE_TOPIC,)),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, items=(_DESCRIBE_GROUP, _DESCRIBE_TOPIC), traits=Trait.ENDS_WITH_CONNECTION),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        request=(Permission(AclOperation.DESCRIBE_CONFIGS, _CLUSTER),),
        traits=Trait.ENDS_WITH_CONNECTION,
    ),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, items=(_DESCRIBE_TOPIC,), traits=Trait.ENDS_WITH_CONNECTION),
    Api(ApiKey.DESCRIBE_QUORUM, request=(_DESCRIBE_CLUSTER,), traits=Trait.ENDS_WITH_CONNECTION),
)
APIS: Final[Mapping[int, Api]] = {each.key: each for each in _ROWS}
SWITCHED_OFF: Final[Mapping[int, Api]] = {
    key: Api(key)
    for key in (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )
}
"""APIs that Kafka lists also while their feature is off, as it is here; `handlers.switched_off` refuses requests."""
LISTED: Final[Mapping[int, Api]] = {**APIS, **SWITCHED_OFF}


def with_trait(trait: Trait) -> frozenset[ApiKey]:
    return frozenset(each.key for each in _ROWS if trait in each.traits)


PIPELINED: Final = with_trait(Trait.PIPELINED)
AUTHENTICATION: Final = with_trait(Trait.AUTHENTICATION)
