"""The APIs that a broker serves, with their versions and the modules of their handlers.

An API is served if the module of its handler exists. ApiVersions advertises Produce from version 0 as Kafka 4 does,
although versions 0 to 2 are refused: otherwise some librdkafka releases silently stop compressing (KAFKA-18659).
"""

import importlib
import pkgutil
from functools import cache
from typing import Final, NamedTuple

from odradek.metadata.feature_node import TRANSACTION_VERSION, FinalizedFeatures
from odradek.protocol.api import BETWEEN_BROKERS, LAST_API_VERSIONS, ApiKey, schema_versions
from odradek.protocol.messages.api_versions import Feature


class Api(NamedTuple):
    """One API. `served` and `advertised` are versions. The handler of a `raw` API takes and returns frames."""

    key: ApiKey
    module: str
    served: range
    advertised: range
    raw: bool = False


_RAW: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS})
PIPELINED: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""APIs that are served before earlier requests of their connection are answered."""
_KEYS: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_PARTITION,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)
_LAST_VERSION: Final = {ApiKey.API_VERSIONS: LAST_API_VERSIONS}
"""Last served versions of APIs whose schemas end elsewhere: earlier for ApiVersions (Kafka 4.4)."""
_FROM_ZERO: Final = frozenset({ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE})
"""APIs that are advertised from version 0, though earlier versions than the served ones are refused.

Otherwise some releases of librdkafka silently stop compressing, and others do without SASL.
"""
FEATURES: Final = (
    Feature(name="group.version", lowest=0, highest=1, finalized=1),
    Feature(name="metadata.version", lowest=30, highest=30, finalized=30),
    Feature(name=TRANSACTION_VERSION, lowest=0, highest=2, finalized=2),
)
"""The features that ApiVersions names (KIP-584): groups of the consumer protocol, 4.3-IV0, whose APIs are served, and
transactions, whose finalized level is in the tree. The other finalized levels are the software's."""
_METADATA_VERSION: Final = FEATURES[1].finalized
HANDLERS: Final = "odradek.broker.handlers"


def features_of(finalized: FinalizedFeatures) -> tuple[tuple[Feature, ...], int]:
    """Return the features with the levels of the cluster, and their epoch.

    The epoch grows with each change and each release with a new level: clients keep the levels of the highest epoch.
    """
    *others, transactions = FEATURES
    current = transactions._replace(finalized=min(finalized.transaction_version, transactions.highest))
    return (*others, current), _METADATA_VERSION + finalized.changes


@cache
def apis() -> dict[int, Api]:
    """Return every API that has a handler, by its key."""
    present = {module.name for module in pkgutil.iter_modules(importlib.import_module(HANDLERS).__path__)}
    return {key: _api(key) for key in _KEYS if key.name.lower() in present}


def _api(key: ApiKey) -> Api:
    schemas = schema_versions(key)
    served = range(schemas.start, _LAST_VERSION.get(key, schemas.stop - 1) + 1)
    advertised = range(served.stop) if key in _FROM_ZERO else range(0) if key in BETWEEN_BROKERS else served
    return Api(key=key, module=key.name.lower(), served=served, advertised=advertised, raw=key in _RAW)
