"""Checks at a broker's start whether its data directories are the ones it had, and handles missing directories.

A replaced disk or an empty mount point looks like a valid new directory, and empty logs in it could replace
acknowledged records. So the metadata tree stores each directory's id (`directory.id` in `meta.properties`, KIP-858). A
directory whose id is stored but not found is *missing*. A directory that is found, not new and not stored has
*returned*: it was replaced, and its logs may be older than those in other directories.

| a partition of this broker has | and another replica is in sync | and no other replica is in sync |
|---|---|---|
| no log, while a directory is missing | it leaves the ISR, and copies | offline; new directories are not used |
| a log in a returned directory | it leaves the ISR, and follows | no start while another directory is missing |

The errors in the last column name the remedies: to mount the disk, or `odradek metadata forget-directory`. See
decision 14.
"""

import logging
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from odradek.broker.cluster.registration.registration import in_live_session
from odradek.broker.cluster.registration.unclean_registration import leave_isrs
from odradek.broker.log.directories.log_directories import LogDirectories
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.directories.log_status import ExpectedLogs
from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, PartitionImage
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import BrokerDirectoriesNode, ClusterIdNode, KnownDirectory
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.metadata.store import NodeExists, Reader, Store
from odradek.model import StorageError, TopicPartition, UnavailableError, first_names
from odradek.runtime import Runtime
from odradek.stores import open_reader

_log = logging.getLogger("odradek.broker")
"""Limit of partitions that an error names."""


class _OwnPartitions(NamedTuple):
    """The partitions of one broker in the metadata tree.

    `ids`: all partitions, with their topic ids; `led`: those that may have acknowledged records; `alone`: those without
    another in-sync replica, or with an unknown ISR; `in_sync`: those where this replica is in sync; `replicated`: those
    with another replica.
    """

    ids: Mapping[TopicPartition, UUID]
    led: set[TopicPartition]
    alone: set[TopicPartition]
    in_sync: set[TopicPartition]
    replicated: set[TopicPartition]
    broken_topics: set[str]


async def check_directories(store: Store, broker_id: int, logs: LogManager, *, timeout_s: float) -> None:
    """Compare the loaded directories with the tree, and set in `logs` which partitions must not be created empty.

    Call it once per start, while no broker is registered with this id. At the end the directories are written to the
    tree. Raise `StorageError` if the broker must not start with these directories, and `UnavailableError` if no
    controller removes the broker from ISRs.
    """
    directories = logs.directories
    written = await in_live_session(lambda: _read_directories(store, broker_id))
    node = _known_directories(written, directories)
    gone = {key: each for key, each in node.directories.items() if key not in directories.paths_by_id}
    missing = {key: each for key, each in gone.items() if not each.is_forgotten}
    returned = _returned_directories(node, directories)
    doubted = _logs_in(returned, logs) | {each.partition for each in logs.statuses.lost.values()}
    stored: Mapping[str, KnownDirectory] = {}
    if gone or doubted or node.accepted or directories.offline:
        own = await in_live_session(lambda: _read_own_partitions(store, broker_id))
        _refuse_old_logs(broker_id, returned, missing, logs, own)
        others = {key for key in own.led if own.ids[key] != UNNAMED and logs.topic_id(key) not in (None, own.ids[key])}
        expected, reason = logs.missing(own.led) | others, ""
        if stale := (doubted | expected) & own.in_sync - own.alone:
            await in_live_session(lambda: leave_isrs(store, broker_id, stale, timeout_s=timeout_s))
            await check_directories(store, broker_id, logs, timeout_s=timeout_s)  # with the new ISRs
            return
        if missing and (expected & own.alone or own.broken_topics):
            reason = f"{_missing_reason(missing, expected, own)}; {_ways_out(broker_id, missing, directories)}"
            if expected & own.alone:
                logs.refuse_new_directories(reason)
            _log.error("Log directories are missing: %s", reason)
            # Returned directories are used from now on, so a missing directory may have older logs when it returns.
            stored = {key: replace(each, is_old=each.is_old or bool(returned)) for key, each in gone.items()}
        replaced = {each.path for each in gone.values()}
        logs.statuses.expect(ExpectedLogs(partitions=expected, topics=own.broken_topics, reason=reason, paths=replaced))
        _settle_lost_records(broker_id, logs, own, node.accepted)
    here = {key: KnownDirectory(path=path) for key, path in directories.paths_by_id.items()}
    updated = BrokerDirectoriesNode(directories={**stored, **here})
    if updated != written:
        await in_live_session(lambda: _write_directories(store, broker_id, updated))


async def check_tree(url: str, runtime: Runtime, found: Mapping[int, LogDirectories], zookeeper: ZookeeperKeys) -> None:
    """Do `check_cluster` and `check_place` for brokers, by id, in a tree that exists. No session begins in SQLite.

    A tree that does not answer is not checked: the brokers wait for it.
    """
    file = url.removeprefix("sqlite:///")
    is_known = any(each.cluster_id is not None for each in found.values())
    if url == "memory:" or not (is_known or (file != url and runtime.disk.exists(file))):
        return
    tree = open_reader(url, runtime, zookeeper=zookeeper, reads_once=True)
    try:
        with suppress(UnavailableError):
            for broker_id, directories in found.items():
                await check_cluster(tree, directories)
                if await tree.get(paths.broker(broker_id)) is None:  # else the id is taken, or a former process's
                    await check_place(tree, broker_id, directories)
    finally:
        await tree.close()


async def check_cluster(store: Reader, directories: LogDirectories) -> None:
    """Raise `StorageError` if the directories, read by `LogDirectories.check`, are not of the tree's cluster."""
    node, own = await store.get(paths.CLUSTER_ID), directories.cluster_id
    known = None if node is None else ClusterIdNode.decode(paths.CLUSTER_ID, node.data).cluster_id
    if own not in (None, known):
        raise StorageError(
            f"the data directory {directories.paths[0]} is of cluster {own}, and the metadata of cluster {known}: use "
            "the --metadata of its own cluster, or another --data-dir"
        )


async def check_place(store: Reader, broker_id: int, directories: LogDirectories) -> None:
    """Raise `StorageError` if the broker's data is in other directories, and none of it in these."""
    written = await _read_directories(store, broker_id)
    known = {} if written is None else {key: each for key, each in written.directories.items() if not each.is_forgotten}
    if not known.keys() & directories.paths_by_id.keys() and (elsewhere := _unlisted(known, directories)):
        raise StorageError(
            f"the data of broker {broker_id} of this cluster is in {' and '.join(elsewhere)}: start this broker with "
            f"--data-dir {','.join(elsewhere)}, or with another --broker-id"
        )


async def resolve_duplicate_logs(store: Store, runtime: Runtime, logs: LogManager) -> None:
    """Resolve partitions that have logs in two directories: keep the log with the topic id of the tree."""
    names = {partition.topic for partition in logs.statuses.duplicates}
    if names:
        topics = await in_live_session(lambda: read_topics(store, names, BrokenNodes()))
        ids = {topic.name: topic.topic_id for topic in topics.values() if topic and topic.topic_id != UNNAMED}
        work = partial(logs.resolve_duplicates, ids, runtime.clock.now_ms())
        await runtime.disk.submit(work, background=True)


def _known_directories(written: BrokerDirectoriesNode | None, directories: LogDirectories) -> BrokerDirectoriesNode:
    """Return the stored directories by id, or the present ones if none is stored, as in Kafka's tree.

    If none is stored, new and offline directories have their path in place of the id, and so count as missing. If a
    directory that is not new is found at that path, its id replaces the path.
    """
    if written is None or not written.directories:
        every = {*directories.paths_by_id.values(), *directories.offline_paths}
        accepted = frozenset[TopicPartition]() if written is None else written.accepted
        now = {path: KnownDirectory(path=path) for path in every}
        written = BrokerDirectoriesNode(directories=now, accepted=accepted)
    known = written.directories.keys() | directories.new_ids
    back = {path: key for key, path in directories.paths_by_id.items() if key not in known}
    return replace(written, directories={back.get(key, key): each for key, each in written.directories.items()})


def _returned_directories(node: BrokerDirectoriesNode, directories: LogDirectories) -> Mapping[str, KnownDirectory]:
    """Return the found directories that are not new, and are not stored or stored with `is_old`."""
    up_to_date = directories.new_ids | {key for key, each in node.directories.items() if not each.is_old}
    here = directories.paths_by_id.items()
    return {key: KnownDirectory(path=path) for key, path in here if key not in up_to_date}


def _logs_in(found: Mapping[str, KnownDirectory], logs: LogManager) -> set[TopicPartition]:
    return {partition for each in found.values() for partition in logs.partitions_in(each.path)}


def _refuse_old_logs(
    broker_id: int,
    returned: Mapping[str, KnownDirectory],
    missing: Mapping[str, KnownDirectory],
    logs: LogManager,
    own: _OwnPartitions,
) -> None:
    """Raise `StorageError` if a returned directory may have older records than another, present or missing."""
    old = _logs_in(returned, logs)
    if duplicates := old & logs.statuses.duplicates:
        raise StorageError(
            f"the data directory {_named(returned)} was replaced by another, which has "
            f"{first_names(sorted(duplicates))}, too; leave it out of log.dirs, or remove the folders of these "
            "partitions from it"
        )
    doubtful = {each for each in old if each in own.alone or each.topic in own.broken_topics}
    if doubtful and missing:
        raise StorageError(
            f"the data directory {_named(returned)} is back after it was replaced, and {_named(missing)}, which may "
            f"have newer records of {first_names(sorted(doubtful))}, is missing, and no other replica is in sync; "
            f"{_ways_out(broker_id, missing, logs.directories)}"
        )


def _settle_lost_records(broker_id: int, logs: LogManager, own: _OwnPartitions, accepted: Set[TopicPartition]) -> None:
    """Accept the loss of records if an operator did, if another replica is in sync, or if the broker is no replica.

    If there is no other replica, also accept the loss of records that were not synced. Other logs with lost records
    stay unused until another replica leads, or an operator accepts the loss.
    """
    for each in tuple(logs.statuses.lost.values()):
        key = each.partition
        is_own = key in own.led and logs.topic_id(key) in (None, own.ids[key])
        if key in accepted:
            _log.warning("%s; an operator accepted the loss", each)
        elif key.topic in own.broken_topics:
            continue
        elif is_own and key in own.alone and (each.is_synced_data or key in own.replicated):
            logs.statuses.advise(key, _commands(broker_id, key, is_replicated=key in own.replicated))
            continue
        logs.accept_lost_records(key)
    if accepted:
        logs.checkpoints.write_all()  # otherwise the next start would find the same loss, not accepted


def _commands(broker_id: int, key: TopicPartition, *, is_replicated: bool) -> str:
    elect = f"odradek partitions elect --unclean --topic {key.topic} --partition {key.partition}"
    accept = f"odradek metadata accept-loss --metadata URL --broker-id {broker_id} {key}"
    others = f"no other replica is in sync: to elect one anyway, run: {elect}; " * is_replicated
    return f"{others}to continue without the lost records, run: {accept}; then restart this broker"


def _missing_reason(missing: Mapping[str, KnownDirectory], expected: Set[TopicPartition], own: _OwnPartitions) -> str:
    alone = [*map(str, expected & own.alone), *(f"the unreadable topic {each}" for each in own.broken_topics)]
    return (
        f"the data directory {_named(missing)} is missing, and with it {len(expected)} logs, which are offline; no "
        f"other replica is in sync of {first_names(sorted(alone))}"
    )


def _unlisted(known: Mapping[str, KnownDirectory], directories: LogDirectories) -> list[str]:
    """Return the paths of directories in `known` that are where they were, but not in `log.dirs`."""
    return [each.path for key, each in known.items() if directories.is_at(each.path, key)]


def _ways_out(broker_id: int, missing: Mapping[str, KnownDirectory], directories: LogDirectories) -> str:
    if unlisted := _unlisted(missing, directories):
        return f"add {' and '.join(unlisted)} to log.dirs (--data-dir), and restart this broker"
    forget = f"odradek metadata forget-directory --metadata URL --broker-id {broker_id} {' '.join(missing)}"
    return f"mount the disk and restart this broker; or, if it is lost for good, first run: {forget}"


def _named(directories: Mapping[str, KnownDirectory]) -> str:
    return ", ".join(f"{each.path} (directory.id {key})" for key, each in directories.items())


async def forget_directories(store: Store, broker_id: int, ids: Collection[str]) -> list[str]:
    """Mark a broker's directories as lost, by their ids, and return their paths. Later starts do not expect them.

    Raise `StorageError` for an id that the tree does not have.
    """
    node = await _read_directories(store, broker_id) or BrokerDirectoriesNode(directories={})
    known = node.directories
    if unknown := sorted(set(ids) - known.keys()):
        there = ", ".join(f"{key} ({each.path})" for key, each in known.items()) or "none"
        raise StorageError(f"broker {broker_id} has no data directory {', '.join(unknown)}; it has {there}")
    forgotten = {key: replace(known[key], is_forgotten=True) for key in ids}
    await _write_directories(store, broker_id, replace(node, directories={**known, **forgotten}))
    return [known[key].path for key in ids]


async def accept_losses(store: Store, broker_id: int, partitions: Collection[TopicPartition]) -> None:
    """Accept that a broker's logs of `partitions` have lost records, so that its next start opens them.

    Raise `StorageError` for a partition without a replica on the broker.
    """
    own = await _read_own_partitions(store, broker_id)
    if unknown := sorted(map(str, set(partitions) - own.ids.keys())):
        raise StorageError(f"broker {broker_id} has no replica of {', '.join(unknown)}")
    node = await _read_directories(store, broker_id) or BrokerDirectoriesNode(directories={})
    await _write_directories(store, broker_id, replace(node, accepted=node.accepted.union(partitions)))


async def _read_directories(store: Reader, broker_id: int) -> BrokerDirectoriesNode | None:
    path = paths.broker_directories(broker_id)
    node = await store.get(path)
    if node is None:
        return None
    try:
        return BrokerDirectoriesNode.decode(path, node.data)
    except BrokenNodeError as error:
        _log.error("%s; the data directories that the broker had are unknown", error)
        return None


async def _write_directories(store: Store, broker_id: int, node: BrokerDirectoriesNode) -> None:
    path, data = paths.broker_directories(broker_id), node.encode()
    try:
        await store.create(path, data)
    except NodeExists:
        await store.set(path, data)


async def _read_own_partitions(store: Store, broker_id: int) -> _OwnPartitions:
    names = set(await store.children(paths.TOPICS))
    topics = await read_topics(store, names, BrokenNodes())
    own = {
        TopicPartition(topic.name, number): (partition, topic.topic_id)
        for topic in topics.values()
        if topic is not None
        for number, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }
    return _OwnPartitions(
        ids={key: topic_id for key, (_, topic_id) in own.items()},
        led={key for key, (partition, _) in own.items() if _was_led(partition)},
        alone={
            key for key, (partition, _) in own.items() if _is_broken(partition) or set(partition.isr) <= {broker_id}
        },
        in_sync={key for key, (partition, _) in own.items() if broker_id in partition.isr},
        replicated={key for key, (partition, _) in own.items() if len(partition.replicas) > 1},
        broken_topics=names - topics.keys(),
    )


def _was_led(partition: PartitionImage) -> bool:
    """Return whether the partition may have had a leader, and so acknowledged records."""
    return _is_broken(partition) or (partition.is_readable and (partition.has_leader or partition.leader_epoch > 0))


def _is_broken(partition: PartitionImage) -> bool:
    """Return whether the partition has a state that cannot be decoded, so that leader and ISR are unknown."""
    return not partition.is_readable and partition.state_version >= 0
