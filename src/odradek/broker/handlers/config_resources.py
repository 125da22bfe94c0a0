"""Describes and alters the configurations of topics, groups, brokers and loggers, for DescribeConfigs and AlterConfigs.

Client metrics, Kafka's other resource type, get INVALID_REQUEST. Wrong keys of a topic or a group get
INVALID_CONFIG, wrong keys of a broker INVALID_REQUEST, as in Kafka (KAFKA-13609).
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from odradek.broker.cluster.broker_loggers import alter_loggers, describe_loggers
from odradek.broker.cluster.config_changes import ConfigChange
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.config.altering import Alteration, altered, check_alterations
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, Value
from odradek.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from odradek.config.dynamic import dynamic_definitions, validate_broker_overrides
from odradek.config.group import GroupConfig, group_config
from odradek.config.topic import TopicConfig, topic_config, validate_topic_overrides
from odradek.metadata.image import ClusterImage
from odradek.model import ConfigurationError, ErrorCode, KafkaError, validate_topic_name
from odradek.security import CLUSTER_NAME, AclOperation, ResourceType


class ConfigResourceType(IntEnum):
    """Types of configuration resources, numbered as on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterResource(Struct, frozen=True, kw_only=True):
    """One resource of an AlterConfigs request. With `replaces`, keys that are not altered are removed."""

    type: int
    name: str
    alterations: tuple[Alteration, ...]
    replaces: bool = False


async def describe(broker: BrokerParts, resource_type: int, name: str) -> Iterable[ConfigEntry]:
    """Return a resource's keys and values. Raise `KafkaError` if it is unknown, another broker, or misconfigured."""
    try:
        if resource_type == ConfigResourceType.TOPIC:
            return describe_topic(broker.config, await _topic_config(broker, name))
        if resource_type == ConfigResourceType.GROUP:
            return describe_group(broker.config, broker.image.group_configs.get(_group_id(name), {}))
        broker_id = _broker_id(broker.config, resource_type, name)
        if resource_type == ConfigResourceType.BROKER_LOGGER:
            return describe_loggers()
        if broker_id is None:
            return describe_broker_defaults(broker.config)
        return describe_broker(broker.config)
    except ConfigurationError as error:
        # The stored configuration is invalid; altering it must stay possible.
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None


def acl_resource(config_type: int, name: str) -> tuple[ResourceType, str]:
    """Return the type and name of the ACL resource for a configuration resource; for a broker, the cluster."""
    if config_type == ConfigResourceType.TOPIC:
        return ResourceType.TOPIC, name
    if config_type == ConfigResourceType.GROUP:
        return ResourceType.GROUP, name
    return ResourceType.CLUSTER, CLUSTER_NAME


async def alter(
    broker: BrokerParts, context: RequestContext, resources: Sequence[AlterResource], *, validate_only: bool
) -> list[dict[str, object]]:
    """Alter each resource completely or not at all, and return the response's entries in order.

    When this returns, this broker's logs and partitions use the new configuration.
    """
    results: list[KafkaError | None] = [None] * len(resources)
    changes: dict[int, ConfigChange] = {}
    named = Counter((resource.type, resource.name) for resource in resources)
    async for place, resource in cooperatively(enumerate(resources)):
        try:
            if named[resource.type, resource.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            if resource.replaces and resource.type == ConfigResourceType.BROKER_LOGGER:
                raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {int(resource.type)}")
            context.check(AclOperation.ALTER_CONFIGS, *acl_resource(resource.type, resource.name))
            check_alterations(resource.alterations)
            if resource.type == ConfigResourceType.BROKER_LOGGER:
                _alter_loggers(broker.config, resource, validate_only=validate_only)
                continue
            changes[place] = _change(broker, resource)
            if validate_only:
                changes[place].change(await _set_now(broker, changes[place]))
        except KafkaError as error:
            results[place] = error.with_traceback(None)
            changes.pop(place, None)
    if changes and not validate_only:
        try:
            made = await broker.metadata_loop.change_configs(list(changes.values()))
            for place, result in zip(changes, made, strict=True):
                results[place] = result
            await broker.partitions.wait_until_applied()
        except KafkaError as error:
            results = [error if place in changes else result for place, result in enumerate(results)]
    return [
        {
            "error_code": ErrorCode.none if error is None else error.code,
            "error_message": None if error is None else error.message,
            "resource_type": resource.type,
            "resource_name": resource.name,
        }
        for resource, error in zip(resources, results, strict=True)
    ]


def _alter_loggers(config: BrokerConfig, resource: AlterResource, *, validate_only: bool) -> None:
    _broker_id(config, resource.type, resource.name)
    alter_loggers(resource.alterations, validate_only=validate_only)


def _change(broker: BrokerParts, resource: AlterResource) -> ConfigChange:
    """Return the change to write. Raise `KafkaError` if this broker cannot alter the resource."""
    if resource.type == ConfigResourceType.TOPIC:
        _check_topic(broker.image, resource.name)
        return ConfigChange(topic=resource.name, change=lambda before: _altered_topic(broker.config, resource, before))
    if resource.type == ConfigResourceType.GROUP:
        group_id = _group_id(resource.name)
        return ConfigChange(group=group_id, change=lambda before: _altered_group(broker.config, resource, before))
    broker_id = _broker_id(broker.config, resource.type, resource.name)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG if broker_id is None else ConfigSource.DYNAMIC_BROKER_CONFIG
    return ConfigChange(
        broker_id=broker_id, change=lambda before: _altered_broker(broker.config, resource, before, source)
    )


def _altered_topic(config: BrokerConfig, resource: AlterResource, before: Mapping[str, str]) -> dict[str, str]:
    inherited = topic_config(config, {})
    own = {} if resource.replaces else before
    after = altered(own, resource.alterations, TopicConfig.definitions(), inherited.get)
    kept = _unknown_before(after, before, TopicConfig.definitions())
    try:
        return validate_topic_overrides(config, {name: text for name, text in after.items() if name not in kept}) | kept
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None


def _altered_group(config: BrokerConfig, resource: AlterResource, before: Mapping[str, str]) -> dict[str, str]:
    inherited = group_config(config, {})
    definitions = GroupConfig.definitions()
    own = {} if resource.replaces else before
    after = altered(
        own, resource.alterations, definitions, lambda name: getattr(inherited, definitions[name].attribute)
    )
    kept = _unknown_before(after, before, definitions)
    try:
        group_config(config, {name: text for name, text in after.items() if name not in kept})
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None
    return after


def _unknown_before(after: Mapping[str, str], before: Mapping[str, str], known: Container[str]) -> dict[str, str]:
    """Return the unknown keys that a request left as they were: brokers ignore them, and refuse new ones."""
    return {name: text for name, text in after.items() if name not in known and before.get(name) == text}


def _altered_broker(
    config: BrokerConfig, resource: AlterResource, before: Mapping[str, str], source: ConfigSource
) -> dict[str, str]:
    own = {} if resource.replaces else before
    known = dynamic_definitions()

    def inherited(name: str) -> Value:
        return config.get(name) if name in BrokerConfig.definitions() else known[name].default

    after = altered(own, resource.alterations, known, inherited)
    try:
        validate_broker_overrides(config, after, source)
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.invalid_request, str(error)) from None
    return after


async def _set_now(broker: BrokerParts, change: ConfigChange) -> Mapping[str, str]:
    if change.topic is not None:
        return await _topic_config(broker, change.topic)
    if change.group is not None:
        return broker.image.group_configs.get(change.group, {})
    return broker.image.broker_configs.get(change.broker_id, {})


def _group_id(name: str) -> str:
    if not name:
        raise KafkaError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    return name


def _check_topic(image: ClusterImage, name: str) -> None:
    """Raise `KafkaError` for an invalid or unknown topic."""
    if validate_topic_name(name) not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")


async def _topic_config(broker: BrokerParts, name: str) -> Mapping[str, str]:
    """Return a topic's configuration. Raise `KafkaError` if the topic is unknown or the tree cannot be reached."""
    _check_topic(broker.image, name)
    return await broker.metadata_loop.topic_config(name)


def _broker_id(config: BrokerConfig, resource_type: int, name: str) -> int | None:
    """Return this broker's id; `None` for the default (empty name). Raise `KafkaError` for another broker or type."""
    if resource_type not in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {int(resource_type)}")
    if name == "" and resource_type == ConfigResourceType.BROKER:
        return None
    if name != str(config.broker_id):
        text = f"Unexpected broker id, expected {config.broker_id}, but received {name}"
        if not name.isdecimal():
            text = f"Node id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.invalid_request, text)
    return config.broker_id
