"""The problems of a cluster as sentences: `cluster_state` reads its state, `problems_of` judges it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from odradek.clients.admin.descriptions import (
    ClusterDescription,
    ConfigResource,
    ConfigResourceType,
    TopicDescription,
)
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.metadata import NO_LEADER, PartitionMetadata
from odradek.model import ErrorCode, OdradekError, TopicPartition, explained

if TYPE_CHECKING:
    from odradek.clients.admin.admin import Admin

_LOG_DIRS_S: Final = 3.0
"""Limit of the wait for one broker's log directories: one that has just died is still in the metadata."""
_MOST_CONFIGS: Final = 200
"""Limit of the topics with out-of-sync replicas whose min.insync.replicas is read."""
_NEARLY_FULL: Final = 0.95
_TOLERATED_IMBALANCE: Final = 0.1
"""Kafka's `leader.imbalance.per.broker.percentage`."""
_COMMON_REPLICAS: Final = 3
"""With as many brokers, a topic has no reason to have one replica."""
_NAMED: Final = 5
"""Limit of the partitions or topics that a sentence names."""


class ClusterState(Struct, frozen=True, kw_only=True):
    """The brokers, the topics with internal ones, and by broker its log directories, None where they are unknown.

    `min_isr` has `min.insync.replicas` of topics with replicas that are not in sync.
    """

    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    log_dirs: Mapping[int, Sequence[LogDirDescription] | None]
    min_isr: Mapping[str, int]


class Problem(Struct, frozen=True, kw_only=True):
    """A fault of a cluster in a sentence, `advice` on what to do, and a `command` that only reads and details it."""

    sentence: str
    advice: str
    command: str
    is_severe: bool = False


LogDirs = Mapping[int, Sequence[LogDirDescription] | None]


async def cluster_state(
    admin: "Admin", log_dirs_of: Callable[[Sequence[int]], Awaitable[LogDirs]] | None = None
) -> ClusterState:
    """Read the state of a cluster. Raises the errors of `Admin.describe_cluster` and `list_topics`.

    `log_dirs_of` returns the log directories of brokers, in place of `read_log_dirs`.
    """
    cluster = await admin.describe_cluster(include_fenced_brokers=True)
    alive = [each.broker_id for each in cluster.brokers if not each.is_fenced]
    topics, log_dirs = await asyncio.gather(
        admin.list_topics(include_internal=True),
        read_log_dirs(admin, alive) if log_dirs_of is None else log_dirs_of(alive),
    )
    return ClusterState(
        cluster=cluster,
        topics=topics,
        log_dirs=log_dirs,
        min_isr=await _min_isr(admin, topics),
    )


async def read_log_dirs(
    admin: "Admin", brokers: Collection[int], partitions: Collection[TopicPartition] | None = None
) -> dict[int, Sequence[LogDirDescription] | None]:
    """Return the log directories of each broker, None where they are unknown, with logs of `partitions` or all."""

    async def read(broker_id: int) -> Sequence[LogDirDescription] | None:
        try:
            async with asyncio.timeout(_LOG_DIRS_S):
                return await admin.describe_log_dirs(broker_id, partitions)
        except (OdradekError, TimeoutError):
            return None

    return dict(zip(brokers, await asyncio.gather(*map(read, brokers)), strict=True))


async def _min_isr(admin: "Admin", topics: Iterable[TopicDescription]) -> dict[str, int]:
    behind = [
        ConfigResource(type=ConfigResourceType.TOPIC, name=topic.name)
        for topic in topics
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions.values())
    ]
    try:
        found = await admin.describe_configs(behind[:_MOST_CONFIGS]) if behind else {}
    except OdradekError:
        return {}  # without the right to see configurations, or between a topic's deletion and the next look
    return {
        resource.name: int(entry.value)
        for resource, entries in found.items()
        for entry in entries
        if entry.name == "min.insync.replicas" and entry.value
    }


def problems_of(state: ClusterState) -> list[Problem]:
    """Return what is wrong, the severe problems first."""
    partitions = [
        (TopicPartition(topic.name, number), each)
        for topic in state.topics
        for number, each in topic.partitions.items()
    ]
    found = [
        *_brokers(state.cluster),
        *_replicas(partitions, state.min_isr),
        *_disks(state.log_dirs),
        *_leaders(partitions, state.cluster),
        *_unreplicated(state),
    ]
    return sorted(found, key=lambda each: not each.is_severe)


def _brokers(cluster: ClusterDescription) -> Iterable[Problem]:
    if cluster.controller_id == -1:
        yield Problem(
            sentence="The cluster has no controller: topics and leaders do not change.",
            advice="The brokers elect one within seconds. If they do not, look into their logs for the metadata store.",
            command="odradek brokers list",
            is_severe=True,
        )
    for broker in cluster.brokers:
        if broker.is_fenced:
            yield Problem(
                sentence=f"Broker {broker.broker_id} is registered, but it does not run or is fenced.",
                advice="Start it again. If it is gone for good, move its replicas with odradek partitions reassign, "
                f"then run odradek brokers unregister {broker.broker_id}.",
                command="odradek brokers list",
                is_severe=True,
            )


_Partitions = Sequence[tuple[TopicPartition, PartitionMetadata]]


def _replicas(partitions: _Partitions, min_isr: Mapping[str, int]) -> Iterable[Problem]:
    offline = [(key, each) for key, each in partitions if each.leader == NO_LEADER]
    if offline:
        brokers = sorted({broker for _, each in offline for broker in each.replicas})
        yield Problem(
            sentence=f"{_count(offline, 'has', 'have')} no leader, so clients can neither read nor write them: "
            f"{_named(offline)}.",
            advice=f"Start the brokers that have the replicas: {_ids(brokers)}.",
            command="odradek partitions describe --unavailable",
            is_severe=True,
        )
    behind = [
        (key, each) for key, each in partitions if each.leader != NO_LEADER and len(each.isr) < len(each.replicas)
    ]
    refused = [(key, each) for key, each in behind if len(each.isr) < min_isr.get(key.topic, 0)]
    if refused:
        yield Problem(
            sentence=f"{_count(refused, 'has', 'have')} fewer in-sync replicas than min.insync.replicas, so producers "
            f"with acks=all are refused: {_named(refused)}.",
            advice=f"Start the brokers that are out of sync: {_ids(_missing(refused))}.",
            command="odradek partitions describe --under-replicated",
            is_severe=True,
        )
    if behind:
        yield Problem(
            sentence=f"{_count(behind, 'has', 'have')} replicas that are not in sync: {_named(behind)}.",
            advice=f"These brokers do not run or are behind, and catch up by themselves if they run: "
            f"{_ids(_missing(behind))}.",
            command="odradek partitions describe --under-replicated",
        )


def _disks(log_dirs: Mapping[int, Sequence[LogDirDescription] | None]) -> Iterable[Problem]:
    for broker_id, directories in log_dirs.items():
        for each in directories or ():
            if each.error_code != ErrorCode.none:
                yield Problem(
                    sentence=f"{each.log_dir} of broker {broker_id} is offline: {explained(each.error_code)}.",
                    advice="Repair or replace the disk, then restart the broker.",
                    command=f"odradek brokers describe {broker_id}",
                    is_severe=True,
                )
            elif each.total_bytes and each.usable_bytes is not None:
                used = 1 - each.usable_bytes / each.total_bytes
                if used >= _NEARLY_FULL:
                    yield Problem(
                        sentence=f"The disk of {each.log_dir} on broker {broker_id} is {used:.1%} full.",
                        advice=f"Free space: keep less of the largest topics, or move replicas to other brokers, as "
                        f"odradek brokers drain {broker_id} does.",
                        command=f"odradek brokers describe {broker_id}",
                        is_severe=True,
                    )


def _leaders(partitions: _Partitions, cluster: ClusterDescription) -> Iterable[Problem]:
    alive = {each.broker_id for each in cluster.brokers if not each.is_fenced}
    preferred, elsewhere = Counter[int](), Counter[int]()
    for _, each in partitions:
        if each.replicas:
            preferred[each.replicas[0]] += 1
            elsewhere[each.replicas[0]] += each.leader not in (NO_LEADER, each.replicas[0])
    for broker_id in sorted(elsewhere.keys() & alive):
        if elsewhere[broker_id] > preferred[broker_id] * _TOLERATED_IMBALANCE:
            yield Problem(
                sentence=f"{elsewhere[broker_id]} of {preferred[broker_id]} partitions that broker {broker_id} is to "
                "lead are led by other brokers.",
                advice="The controller moves them back after some minutes; odradek partitions elect --all does it now.",
                command="odradek brokers describe",
            )


def _unreplicated(state: ClusterState) -> Iterable[Problem]:
    alone = [topic.name for topic in state.topics if any(len(each.replicas) == 1 for each in topic.partitions.values())]
    if alone and len(state.cluster.brokers) >= _COMMON_REPLICAS:
        more = f" and {len(alone) - _NAMED:,} more" if len(alone) > _NAMED else ""
        yield Problem(
            sentence=f"{len(alone):,} of {len(state.topics):,} topics have partitions with one replica, which cannot "
            f"be used while that broker is down, and are lost with its disk: {', '.join(alone[:_NAMED])}{more}.",
            advice="Add replicas with odradek partitions reassign --topic NAME --partition N --replicas ID,ID.",
            command=f"odradek topics describe {' '.join(alone[:_NAMED])}",
        )


def _count(partitions: _Partitions, singular: str, plural: str) -> str:
    return f"1 partition {singular}" if len(partitions) == 1 else f"{len(partitions):,} partitions {plural}"


def _named(partitions: _Partitions) -> str:
    names = [f"{key.topic}-{key.partition}" for key, _ in partitions[:_NAMED]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _missing(partitions: _Partitions) -> list[int]:
    return sorted({broker for _, each in partitions for broker in set(each.replicas) - set(each.isr)})


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
