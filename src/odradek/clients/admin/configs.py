"""Describes and changes configurations. Those of a broker and its loggers are requested from it, others from any."""

import asyncio
from collections.abc import Iterable, Mapping

from odradek.clients.admin.descriptions import ConfigEntry, ConfigResource, ConfigResourceType, config_entry
from odradek.clients.admin.topics import answer_error, topic_error
from odradek.clients.arguments import instances_of
from odradek.clients.cluster import Cluster
from odradek.clients.retry import ask_each, retrying
from odradek.config.altering import Alteration
from odradek.config.properties import property_text
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.wire.client_connection import ClientConnection

_TYPES_FROM = 1
"""First version of ListConfigResources for other types than client metrics (KIP-1142)."""


async def describe_configs(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> dict[ConfigResource, list[ConfigEntry]]:
    """Return each resource's configuration entries, sorted by name. Raises `KafkaError` if one is refused."""

    async def request(some: list[ConfigResource]) -> dict[ConfigResource, list[ConfigEntry] | KafkaError]:
        requested = [
            {"resource_type": each.type.value, "resource_name": each.name, "configuration_keys": None} for each in some
        ]
        message = {
            "resources": requested,
            "include_synonyms": include_synonyms,
            "include_documentation": include_documentation,
        }
        connection = await _connection_for(cluster, some[0])
        response = await connection.request(ApiKey.DESCRIBE_CONFIGS, message)
        by_key = {(each.type.value, each.name): each for each in some}
        found: dict[ConfigResource, list[ConfigEntry] | KafkaError] = {}
        for result in response.results:
            resource = by_key[int(result.resource_type), result.resource_name]
            entries = sorted(map(config_entry, result.configs), key=lambda entry: entry.name)
            found[resource] = resource_error(resource, result) or entries
        return found

    async def ask(some: list[ConfigResource]) -> Mapping[ConfigResource, list[ConfigEntry] | KafkaError]:
        by_broker: dict[str, list[ConfigResource]] = {}
        for resource in some:
            by_broker.setdefault(resource.name if _has_broker(resource) else "", []).append(resource)
        found: dict[ConfigResource, list[ConfigEntry] | KafkaError] = {}
        for answer in await asyncio.gather(*map(request, by_broker.values()), return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    described: dict[ConfigResource, list[ConfigEntry]] = {}
    for resource, answer in (await ask_each(cluster, instances_of(ConfigResource, resources), ask)).items():
        if isinstance(answer, KafkaError):
            raise answer
        described[resource] = answer
    return described


async def alter_configs(
    cluster: Cluster, resource: ConfigResource, alterations: Iterable[Alteration], *, validate_only: bool = False
) -> None:
    """Change dynamic configurations of one resource; a broker resource with name "" means all brokers (KIP-339).

    If it raises `KafkaError` (INVALID_CONFIG, INVALID_REQUEST and others), nothing is changed.
    """
    (resource,) = instances_of(ConfigResource, [resource])
    configs = [
        {"name": each.name, "config_operation": int(each.operation), "value": _text(each)}
        for each in instances_of(Alteration, alterations)
    ]
    altered = {"resource_type": resource.type.value, "resource_name": resource.name, "configs": configs}
    message = {"resources": [altered], "validate_only": validate_only}

    async def attempt() -> None:
        connection = await _connection_for(cluster, resource)
        response = await connection.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, message)
        for result in response.responses:
            if (error := resource_error(resource, result)) is not None:
                raise error

    await retrying(cluster, attempt)


async def list_config_resources(
    cluster: Cluster, types: Iterable[ConfigResourceType] = (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
) -> list[ConfigResource]:
    """Return the resources of these types: all topics, the live brokers, and groups with overrides (KIP-1142).

    Raises `KafkaError` UNSUPPORTED_VERSION from brokers before Kafka 4.1.
    """
    message = {"resource_types": [kind.value for kind in types]}

    async def attempt() -> list[ConfigResource]:
        connection = await cluster.connections.least_loaded()
        if connection.version(ApiKey.LIST_CONFIG_RESOURCES) < _TYPES_FROM:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"broker {connection.address} is too old to list resources; list topics and brokers instead",
            )
        response = await connection.request(ApiKey.LIST_CONFIG_RESOURCES, message)
        if (error := answer_error("configurations", response)) is not None:
            raise error
        found = [(each.resource_type, each.resource_name) for each in response.config_resources]
        return [
            ConfigResource(type=ConfigResourceType(kind), name=name)
            for kind, name in sorted(found)
            if kind in ConfigResourceType._value2member_map_
        ]

    return await retrying(cluster, attempt)


def resource_error(resource: ConfigResource, answer: object) -> KafkaError | None:
    """Return a response's error about a resource."""
    if resource.type is ConfigResourceType.TOPIC:
        return topic_error(resource.name, answer)
    kind = resource.type.name.lower().replace("_", " ")
    return answer_error(f"{kind} {resource.name}" if resource.name else "all brokers", answer)


def _has_broker(resource: ConfigResource) -> bool:
    of_brokers = {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}
    return resource.type in of_brokers and resource.name.isdecimal()


async def _connection_for(cluster: Cluster, resource: ConfigResource) -> ClientConnection:
    if _has_broker(resource):
        return await cluster.connections.to_broker(int(resource.name))
    return await cluster.connections.least_loaded()


def _text(alteration: Alteration) -> str | None:
    return None if alteration.value is None else property_text(alteration.name, alteration.value)
