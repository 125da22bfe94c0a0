"""Describes and alters quotas of users, client ids and IP addresses (KIP-546, KIP-612)."""

from collections.abc import Mapping
from typing import Any

from odradek.clients.arguments import instances_of
from odradek.clients.cluster import Cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, explained
from odradek.protocol.api import ApiKey
from odradek.security.quotas import DEFAULT, QuotaEntity


async def describe_client_quotas(cluster: Cluster) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of users, client ids and IP addresses by Kafka's keys (KIP-546)."""

    async def attempt() -> Any:
        connection = await cluster.connections.least_loaded()
        response = await connection.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
        _raise(response)
        return response.entries or ()

    return {
        _entity(entry.entity): {each.key: each.value for each in entry.values}
        for entry in await retrying(cluster, attempt)
    }


async def alter_client_quotas(
    cluster: Cluster, entity: QuotaEntity, quotas: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of an entity, and remove those that are None. An empty name in it stands for the default.

    If it raises `KafkaError` (INVALID_REQUEST and others), nothing is changed.
    """
    (checked,) = instances_of(QuotaEntity, [entity])
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name or None} for kind, name in checked.parts.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else float(value), "remove": value is None}
            for key, value in quotas.items()
        ],
    }

    async def attempt() -> None:
        connection = await cluster.connections.least_loaded()
        message = {"entries": [entry], "validate_only": validate_only}
        _raise((await connection.request(ApiKey.ALTER_CLIENT_QUOTAS, message)).entries[0])

    await retrying(cluster, attempt)


def _entity(parts: Any) -> QuotaEntity:
    names = {each.entity_type.replace("-", "_"): each.entity_name or DEFAULT for each in parts}
    return QuotaEntity(names.get("user"), names.get("client_id"), names.get("ip"))


def _raise(response: Any) -> None:
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or explained(response.error_code))
