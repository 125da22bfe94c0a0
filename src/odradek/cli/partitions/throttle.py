"""The throttles that `partitions reassign` sets (KIP-73, KIP-113), and removes as `kafka-reassign-partitions` does."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.cli.partition_lists import Assignment
from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType, ConfigSource
from odradek.clients.admin.moves import list_moves
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ErrorCode, KafkaError, TopicPartition

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_SENDERS, _FETCHERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


async def set_throttle(client: Admin, origin: Assignment, targets: Assignment, bytes_per_second: int) -> None:
    """Limit what the brokers of these reassignments send and fetch for them; `origin` has the present replicas.

    Reassignments of the same topics that are in progress stay throttled.
    """
    topics = {key.topic for key in targets}
    moving = await client.list_partition_reassignments()
    before, after = dict(origin), dict(targets)
    for key, each in moving.items():
        if key.topic in topics:
            before[key] = tuple(set(each.replicas) - set(each.adding_replicas))
            after.setdefault(key, each.target)
    senders = {key: [*before[key]] for key in after}
    fetchers = {key: [each for each in after[key] if each not in before[key]] for key in after}
    for topic in sorted(topics):
        lists = {_SENDERS: _replicas(topic, senders), _FETCHERS: _replicas(topic, fetchers)}
        await client.alter_configs(_topic(topic), [_set(name, text) for name, text in lists.items()])
    for broker in sorted({each for some in (*senders.values(), *fetchers.values()) for each in some}):
        await client.alter_configs(_broker(broker), [_set(name, str(bytes_per_second)) for name in _RATES])


async def set_log_dirs_throttle(client: Admin, targets: Assignment, bytes_per_second: int) -> None:
    """Limit what the brokers of these partitions copy between their directories."""
    for broker in sorted({each for some in targets.values() for each in some}):
        await client.alter_configs(_broker(broker), [_set(_LOG_DIRS_RATE, str(bytes_per_second))])


async def remove_throttle(client: Admin, keys: Iterable[TopicPartition]) -> list[str]:
    """Remove the throttles of topics without a reassignment in progress, and of the brokers if nothing moves at all.

    Return what was throttled.
    """
    moving = {each.partition for each in await list_moves(client, None)}
    idle = sorted({key.topic for key in keys} - {key.topic for key in moving})
    brokers = [] if moving else [each.broker_id for each in (await client.describe_cluster()).brokers]
    wanted = [
        *((_topic(each), (_SENDERS, _FETCHERS)) for each in idle),
        *((_broker(each), (*_RATES, _LOG_DIRS_RATE)) for each in brokers),
    ]
    removed = await asyncio.gather(*(_remove(client, resource, names) for resource, names in wanted))
    return [
        f"{each.type.name.lower()} {each.name}" for (each, _), was_set in zip(wanted, removed, strict=True) if was_set
    ]


async def _remove(client: Admin, resource: ConfigResource, names: Sequence[str]) -> bool:
    """Delete the keys that the resource itself sets; return whether there were any, False for a topic that is gone."""
    own = {ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG}
    try:
        (entries,) = (await client.describe_configs([resource])).values()
        there = [each.name for each in entries if each.name in names and each.source in own]
        if there:
            deletions = [Alteration(name=name, operation=AlterOperation.DELETE, value=None) for name in there]
            await client.alter_configs(resource, deletions)
    except KafkaError as error:
        if error.code != ErrorCode.unknown_topic_or_partition:
            raise
        return False
    return bool(there)


def _replicas(topic: str, brokers: dict[TopicPartition, list[int]]) -> str:
    return ",".join(
        f"{key.partition}:{each}" for key, some in sorted(brokers.items()) if key.topic == topic for each in some
    )


def _topic(name: str) -> ConfigResource:
    return ConfigResource(type=ConfigResourceType.TOPIC, name=name)


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(type=ConfigResourceType.BROKER, name=str(broker_id))


def _set(name: str, value: str) -> Alteration:
    return Alteration(name=name, operation=AlterOperation.SET, value=value)
