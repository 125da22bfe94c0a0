"""The APIs and features that a broker supports, and updates of the finalized features (KIP-584)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from odradek import __version__
from odradek.clients.cluster import Cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
VersionRange = tuple[int, int]
"""The lowest and the highest version."""


class BrokerVersions(Struct, frozen=True, kw_only=True):
    """The API versions of a broker by number (`ApiKey`), and the features that the broker supports.

    `finalized_features` are the levels that the whole cluster uses; without any,
    as in clusters on ZooKeeper, `finalized_features_epoch` is -1.
    """

    api_versions: Mapping[int, VersionRange]
    supported_features: Mapping[str, VersionRange]
    finalized_features: Mapping[str, VersionRange]
    finalized_features_epoch: int


async def describe_broker_versions(cluster: Cluster, broker_id: int | None = None) -> BrokerVersions:
    """Return the APIs and features that a broker, by default any, supports (KIP-584)."""

    async def attempt() -> Any:
        connections = cluster.connections
        connection = await (connections.least_loaded() if broker_id is None else connections.to_broker(broker_id))
        message = {"client_software_name": "odradek", "client_software_version": __version__}
        response = await connection.request(ApiKey.API_VERSIONS, message)
        if response.error_code != ErrorCode.none:
            raise KafkaError(response.error_code, f"broker {connection.address}: {explained(response.error_code)}")
        return response

    response = await retrying(cluster, attempt)
    supported: Iterable[Any] = optional(response, "supported_features", ())
    finalized: Iterable[Any] = optional(response, "finalized_features", ())
    return BrokerVersions(
        api_versions={int(each.api_key): (each.min_version, each.max_version) for each in response.api_keys},
        supported_features={each.name: (each.min_version, each.max_version) for each in supported},
        finalized_features={each.name: (each.min_version_level, each.max_version_level) for each in finalized},
        finalized_features_epoch=optional(response, "finalized_features_epoch", -1),
    )


async def update_features(
    cluster: Cluster, upgrades: Mapping[str, int], downgrades: Mapping[str, int] | None = None
) -> None:
    """Finalize higher and lower levels of features by name (KIP-584): all of them, or none."""
    updates = [
        {"feature": name, "max_version_level": level, "allow_downgrade": kind != _UPGRADE, "upgrade_type": kind}
        for kind, levels in ((_UPGRADE, upgrades), (_SAFE_DOWNGRADE, downgrades or {}))
        for name, level in levels.items()
    ]
    message = {"timeout_ms": cluster.timeout_ms, "feature_updates": updates}

    async def attempt() -> None:
        connection = await cluster.connections.least_loaded()
        response = await connection.request(ApiKey.UPDATE_FEATURES, message)
        for each in (response, *optional(response, "results", ())):
            if each.error_code != ErrorCode.none:
                raise KafkaError(each.error_code, each.error_message or explained(each.error_code))

    await retrying(cluster, attempt)
