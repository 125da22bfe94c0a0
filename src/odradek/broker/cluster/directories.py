"""Checks at a broker's start that its data directories are those it had, and handles directories that are missing.

The metadata tree stores the ids of a broker's directories (`directory.id` in `meta.properties`, KIP-858). A replaced
disk or an empty mount point looks like a new, good directory, but the stored id is then found nowhere. Partitions of
the missing directory that other brokers lead are copied from them. Partitions without another in-sync replica stay
offline until the disk is back or an operator gives it up (`forget_directories`). See decision 14.
"""

import logging
from collections.abc import Collection, Mapping, Set
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from odradek.broker.cluster.registration import in_live_session
from odradek.broker.cluster.unclean_registration import leave_isrs
from odradek.log.directories.log_manager import LogManager
from odradek.log.errors import CheckpointError
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, PartitionImage
from odradek.metadata.nodes import BrokenNodeError, BrokerDirectoriesNode, KnownDirectory
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.metadata.store import NodeExists, Store
from odradek.model import StorageError, TopicPartition
from odradek.runtime import Runtime

_log = logging.getLogger("odradek.broker")
_UNKNOWN: Final = "unknown-"
"""The prefix of made-up ids for lost directories whose ids the tree did not store."""
_MOST_NAMED: Final = 10
"""Partitions that a log line names."""


class _OwnPartitions(NamedTuple):
    """The partitions of this broker in the metadata tree.

    `ids`: all, with their topic ids; `led`: may hold acknowledged records; `alone`: no other replica is in sync;
    `in_sync`: this replica is in sync; `replicated`: have another replica, in sync or not.
    """

    ids: Mapping[TopicPartition, UUID]
    led: set[TopicPartition]
    alone: set[TopicPartition]
    in_sync: set[TopicPartition]
    replicated: set[TopicPartition]
    broken_topics: set[str]


async def check_directories(store: Store, broker_id: int, logs: LogManager, *, timeout_s: float) -> bool:
    """Compare the loaded directories with the tree, and tell `logs` which partitions must not be created empty.

    Call it while no broker is registered with this id, once per start: the directories are written to the tree at the
    end. Return whether the directories are those that the broker had; in others, logs may end where they ended long
    ago, even after a clean shutdown. Raise `UnavailableError` if live brokers are in sync and no controller shrinks
    the ISR.
    """
    node = await in_live_session(lambda: _read_directories(store, broker_id))
    written = None if node is None else node.directories
    accepted = frozenset[TopicPartition]() if node is None else node.accepted
    here, offline_paths = logs.directories.paths_by_id, logs.directories.offline_paths
    known = None if not written else _recognized(written, here, logs.directories.new_ids)
    # If the tree stores none, as after an earlier release, new and offline directories count as unknown.
    new = sorted({here[key] for key in logs.directories.new_ids} | offline_paths)
    unknown = {f"{_UNKNOWN}{number}": KnownDirectory(path=path) for number, path in enumerate(new)}
    before = unknown if known is None else known
    offline = {key: each for key, each in before.items() if key not in here and each.path in offline_paths}
    lost = {key: each for key, each in before.items() if key not in here and each.path not in offline_paths}
    missing: Set[TopicPartition] = frozenset()
    doubtful: Set[TopicPartition] = frozenset()
    waited_for: Mapping[str, KnownDirectory] = {}
    older = {} if known is None else _superseded(logs, known)
    short = {each.partition for each in logs.lost_records}
    if lost or offline or offline_paths or short or accepted:
        own = await in_live_session(lambda: _read_own_partitions(store, broker_id))
        superseded = frozenset[TopicPartition]().union(*older.values()) if lost or offline else frozenset()
        if stale := ((superseded | short) & own.in_sync) - own.alone:
            await in_live_session(lambda: leave_isrs(store, broker_id, stale, timeout_s=timeout_s))
            own = await in_live_session(lambda: _read_own_partitions(store, broker_id))
        accepted -= _settle_lost_records(broker_id, logs, own, accepted)
        others = {key for key in own.led if own.ids[key] != UNNAMED and logs.topic_id(key) not in (None, own.ids[key])}
        missing = logs.missing(own.led) | others
        alone = missing & own.alone if lost else frozenset[TopicPartition]()
        doubtful = superseded & own.alone
        if doubtful:
            _stop(broker_id, logs, doubtful, {**lost, **offline})
        if missing or doubtful or own.broken_topics:
            waited_for = {key: _narrowed(each, alone | doubtful) for key, each in lost.items()}
        where = {key: each.path for key, each in waited_for.items()}
        expected = set(own.ids) if offline_paths else missing
        logs.set_expected_logs(expected, own.broken_topics, lost=where, irreplaceable=alone)
        if where and (missing or own.broken_topics):
            _report(broker_id, waited_for, missing, alone)
    counted_on = {**offline, **waited_for}
    for key, path in here.items():
        # The second log of a duplicate is not open, and is no newer if it is opened one day.
        doubted = {each for each in older.get(path, ()) if each in doubtful or logs.get(each) is None}
        counted_on[key] = KnownDirectory(path=path, doubted=frozenset(doubted))
    if BrokerDirectoriesNode(directories=counted_on, accepted=accepted) != node:
        await in_live_session(lambda: _write_directories(store, broker_id, counted_on, accepted=accepted))
    return not missing if known is None else not lost and here.keys() <= known.keys()


async def resolve_duplicate_logs(store: Store, runtime: Runtime, logs: LogManager) -> None:
    """Resolve partitions with logs in two directories: the log with the topic id in the tree is kept."""
    names = {partition.topic for partition in logs.duplicates}
    if names:
        topics = await in_live_session(lambda: read_topics(store, names, BrokenNodes()))
        ids = {topic.name: topic.topic_id for topic in topics.values() if topic and topic.topic_id != UNNAMED}
        work = partial(logs.resolve_duplicates, ids, runtime.clock.now_ms())
        await runtime.disk.submit(work, background=True)


def _recognized(
    written: Mapping[str, KnownDirectory], here: Mapping[str, str], new: Set[str]
) -> Mapping[str, KnownDirectory]:
    """Return the stored directories, with the ids that were found at the paths of those stored under made-up ids."""
    back = {path: key for key, path in here.items() if key not in written and key not in new}
    return {back.get(each.path, key) if key.startswith(_UNKNOWN) else key: each for key, each in written.items()}


def _superseded(logs: LogManager, known: Mapping[str, KnownDirectory]) -> Mapping[str, Set[TopicPartition]]:
    """Return, by path, the partitions whose logs may have continued in a directory that is missing now.

    This happens when an old disk is mounted in place of the one that replaced it.
    """
    found: dict[str, Set[TopicPartition]] = {}
    for key, path in logs.directories.paths_by_id.items():
        if key not in logs.directories.new_ids:
            partitions = set(logs.partitions_in(path))
            directory = known.get(key, KnownDirectory(path=path, partitions=frozenset()))
            counted = partitions if directory.partitions is None else directory.partitions
            found[path] = (partitions & directory.doubted) | (partitions - counted)
    return found


def _settle_lost_records(
    broker_id: int, logs: LogManager, own: _OwnPartitions, accepted: Set[TopicPartition]
) -> Set[TopicPartition]:
    """Open logs that lost records if other replicas have these, if nothing can restore them, or if an operator agreed.

    Other such logs are neither led nor followed until another replica leads. Return the entries of `accepted` that are
    done.
    """
    for each in logs.lost_records:
        key = each.partition
        is_own = key in own.led and logs.topic_id(key) in (None, own.ids[key])
        if key in accepted:
            _log.warning("%s; an operator accepted the loss", each)
        elif key.topic in own.broken_topics:
            continue
        elif is_own and key in own.alone and (each.is_synced_data or key in own.replicated):
            logs.lost_records.advise(key, _commands(broker_id, key, is_replicated=key in own.replicated))
            continue
        logs.accept_lost_records(key)
    try:
        if accepted:
            logs.checkpoints.write_all()  # else the next start, for which nothing is accepted, would find the same
    except CheckpointError as error:
        _log.warning("%s; the losses that an operator accepted stay in the metadata tree", error)
        return frozenset()
    return accepted


def _commands(broker_id: int, key: TopicPartition, *, is_replicated: bool) -> str:
    elect = f"odradek partitions elect --unclean --topic {key.topic} --partition {key.partition}"
    accept = f"odradek metadata accept-loss --metadata URL --broker-id {broker_id} {key}"
    others = f"no other replica is in sync: to elect one anyway, run: {elect}; " * is_replicated
    return f"{others}to continue without the lost records, run: {accept}; then restart this broker"


def _stop(broker_id: int, logs: LogManager, doubtful: Set[TopicPartition], away: Mapping[str, KnownDirectory]) -> None:
    """Take logs offline that have no other in-sync replica and may have newer files in a missing directory."""
    named = ", ".join(sorted(map(str, doubtful))[:_MOST_NAMED])
    replacement = _named(away)
    _log.error(
        "%d logs are offline because the data directory %s, which replaced theirs and is missing, may have newer "
        "records (%s). Stop the broker, mount the disk and start again; or, if it is lost for good, run: %s",
        len(doubtful), replacement, named, _forget_command(broker_id, away),
    )  # fmt: skip
    for each in sorted(doubtful & logs.logs.keys()):
        logs.logs[each].halt(f"the missing data directory {replacement} may have newer records")


def _narrowed(directory: KnownDirectory, partitions: Set[TopicPartition]) -> KnownDirectory:
    """Limit the logs that count if `directory` returns to `partitions`: others may have been copied meanwhile."""
    counted = partitions if directory.partitions is None else partitions & directory.partitions
    return KnownDirectory(path=directory.path, partitions=frozenset(counted - directory.doubted))


def _report(
    broker_id: int, lost: Mapping[str, KnownDirectory], missing: Set[TopicPartition], alone: Set[TopicPartition]
) -> None:
    named = sorted(map(str, alone))[:_MOST_NAMED]
    _log.error(
        "The data directory %s is missing, and with it %d logs: %d are copied from other brokers that lead them, and "
        "%d without another in-sync replica are offline%s. Stop the broker, mount the disk and start again; or, if it "
        "is lost for good, run: %s",
        _named(lost), len(missing), len(missing) - len(alone), len(alone), f" ({', '.join(named)})" if named else "",
        _forget_command(broker_id, lost),
    )  # fmt: skip


def _named(directories: Mapping[str, KnownDirectory]) -> str:
    return ", ".join(f"{each.path} (directory.id {key})" for key, each in directories.items())


def _forget_command(broker_id: int, directories: Collection[str]) -> str:
    return f"odradek metadata forget-directory --metadata URL --broker-id {broker_id} {' '.join(directories)}"


async def forget_directories(store: Store, broker_id: int, ids: Collection[str]) -> list[str]:
    """Give up directories, by their ids, and return their paths. The broker's next start creates what is missing.

    Raise `StorageError` for an id that the tree does not have.
    """
    node = await _read_directories(store, broker_id) or BrokerDirectoriesNode(directories={})
    known = node.directories
    if unknown := sorted(set(ids) - known.keys()):
        there = ", ".join(f"{key} ({each.path})" for key, each in known.items()) or "none"
        raise StorageError(f"broker {broker_id} has no data directory {', '.join(unknown)}; it has {there}")
    kept = {key: each for key, each in known.items() if key not in ids}
    await _write_directories(store, broker_id, kept, accepted=node.accepted)
    return [known[key].path for key in ids]


async def accept_losses(store: Store, broker_id: int, partitions: Collection[TopicPartition]) -> None:
    """Accept that a broker's logs have lost records, so that its next start opens them.

    Raise `StorageError` for a partition of which the broker has no replica.
    """
    own = await _read_own_partitions(store, broker_id)
    if unknown := sorted(map(str, set(partitions) - own.ids.keys())):
        raise StorageError(f"broker {broker_id} has no replica of {', '.join(unknown)}")
    node = await _read_directories(store, broker_id) or BrokerDirectoriesNode(directories={})
    await _write_directories(store, broker_id, node.directories, accepted=node.accepted.union(partitions))


async def _read_directories(store: Store, broker_id: int) -> BrokerDirectoriesNode | None:
    path = paths.broker_directories(broker_id)
    node = await store.get(path)
    if node is None:
        return None
    try:
        return BrokerDirectoriesNode.decode(path, node.data)
    except BrokenNodeError as error:
        _log.error("%s; the data directories that the broker had are unknown", error)
        return None


async def _write_directories(
    store: Store,
    broker_id: int,
    directories: Mapping[str, KnownDirectory],
    *,
    accepted: frozenset[TopicPartition] = frozenset(),
) -> None:
    path = paths.broker_directories(broker_id)
    data = BrokerDirectoriesNode(directories=directories, accepted=accepted).encode()
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
    """Return whether the partition may hold acknowledged records: each change of the leader raises the epoch."""
    return _is_broken(partition) or (partition.is_readable and (partition.has_leader or partition.leader_epoch > 0))


def _is_broken(partition: PartitionImage) -> bool:
    """Return whether the partition's state is unreadable, so that its leader and ISR are unknown."""
    return not partition.is_readable and partition.state_version >= 0
