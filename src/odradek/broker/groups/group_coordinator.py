"""The groups that this broker coordinates (SPEC 6).

A group belongs to the partition of `__consumer_offsets` that its id hashes to; the leader of the partition is its
coordinator. Shards are created and unloaded as leadership changes; the handlers look them up here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from odradek.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from odradek.broker.groups.group_log import GroupLog
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.config import BrokerConfig
from odradek.controller import NewTopic
from odradek.groups import GroupSettings, State
from odradek.metadata.image import BrokerImage, ClusterImage
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.runtime import Clock

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000
_INITIAL_RELOAD_BACKOFF_S: Final = 1.0
_MAX_RELOAD_BACKOFF_S: Final = 60.0
"""Backoff between attempts to load a partition's groups, first and longest."""
_DEFAULT_REPLICATION_FACTOR: Final = 3
"""Replication factor of Kafka's internal topics."""
_log = logging.getLogger("odradek.groups")


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the group's partition of `__consumer_offsets`: Java's `abs(group_id.hashCode()) % count`."""
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code % partition_count


def offsets_topic(config: BrokerConfig) -> NewTopic:
    """Return `__consumer_offsets` as it is created with the first FindCoordinator."""
    return NewTopic(
        name=OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


class LeaderPartitions(Protocol):
    """The partitions that this broker leads."""

    def on_leadership(self, callback: Callable[[TopicPartition, Partition | None], None]) -> None:
        """Call back with every partition that this broker begins to lead, and with `None` when it resigns."""


class GroupCoordinator:
    """The shards of one broker. `create_topic` returns when the topic is in the image."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        partitions: LeaderPartitions,
        *,
        create_topic: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._partitions = partitions
        self._create = create_topic
        config = metadata.config
        self._settings = GroupSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms, max_size=config.group_max_size
        )
        self._image = ClusterImage()
        self._shards: dict[int, GroupCoordinatorShard] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    # -- start, stop, leaders ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start loading the groups of every partition that this broker leads, now and in future, without waiting."""
        self._image = self._metadata.image
        self._partitions.on_leadership(self._on_leadership_change)
        self._schedule_cleanup()

    async def stop(self) -> None:
        """Unload all shards, answering waiting requests with NOT_COORDINATOR, and stop the timer."""
        self._stop_timers()
        for number in tuple(self._shards):
            self._on_resignation(number)

    def kill(self) -> None:
        """Drop everything without answering, as if the process were killed."""
        self._stop_timers()
        for load in self._loads.values():
            load.cancel()
        for shard in self._shards.values():
            shard.kill()
        self._shards.clear()

    def _stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_leadership_change(self, topic_partition: TopicPartition, partition: Partition | None) -> None:
        if topic_partition.topic != OFFSETS_TOPIC:
            return
        if partition is None:
            self._on_resignation(topic_partition.partition)
        else:
            self._on_election(topic_partition.partition, partition)

    def _on_election(self, number: int, partition: Partition) -> None:
        self._on_resignation(number)
        log = GroupLog(partition, self._clock, self._metadata.config.offsets_commit_timeout_ms)
        self._loads[number] = asyncio.get_running_loop().create_task(
            self._load_until_done(number, self._create_shard(number, log))
        )

    def _create_shard(self, number: int, log: GroupLog) -> GroupCoordinatorShard:
        shard = self._shards[number] = GroupCoordinatorShard(log, self._settings, self._clock)
        return shard

    def _on_resignation(self, number: int) -> None:
        load = self._loads.pop(number, None)
        if load is not None:
            load.cancel()
        shard = self._shards.pop(number, None)
        if shard is not None:
            shard.unload()

    async def _load_until_done(self, number: int, shard: GroupCoordinatorShard) -> None:
        name = shard.log.partition.topic_partition
        delay_s = _INITIAL_RELOAD_BACKOFF_S
        while not await self._try_load(shard, delay_s):
            # A shard with only some of its groups would break promises, so this broker does not act as coordinator.
            del self._shards[number]
            shard.unload()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_RELOAD_BACKOFF_S)
            shard = self._create_shard(number, shard.log)
        del self._loads[number]
        self._check_assignments(shard)
        if shard.groups:
            _log.info("Finished loading %d groups with %d offsets from %s", len(shard.groups), len(shard.offsets), name)

    async def _try_load(self, shard: GroupCoordinatorShard, delay_s: float) -> bool:
        """Try to load a shard; log a failure together with the delay until the next attempt."""
        try:
            await shard.load()
        except Exception as error:
            _log.error(
                "Failed to load the groups of %s: %s; they have no coordinator, the next attempt is in %.0f s",
                shard.log.partition.topic_partition, error, delay_s,
                exc_info=None if isinstance(error, OdradekError) else error,
            )  # fmt: skip
            return False
        return True

    def _check_assignments(self, shard: GroupCoordinatorShard) -> None:
        """Rebalance groups whose topics changed while they had no coordinator (SPEC 6, failover phase 1)."""
        counts = {name: len(topic.partitions) for name, topic in self._metadata.image.topics.items()}
        for group in list(shard.groups.values()):
            if group.state is State.STABLE and not group.assignment_matches(counts):
                reason = "topics or partitions changed while the group had no coordinator"
                shard.apply_effects(group, group.prepare_rebalance(reason, shard.now_ms))

    def _schedule_cleanup(self) -> None:
        delay_s = self._metadata.config.offsets_retention_check_interval_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._cleanup_group_metadata)

    def _cleanup_group_metadata(self) -> None:
        self._schedule_cleanup()
        self._on_new_metadata_image()
        for shard in self._ready():
            shard.cleanup_group_metadata(self._metadata.config.offsets_retention_minutes * _MINUTE_MS)

    def _on_new_metadata_image(self) -> None:
        """Remove the offsets of deleted topics, also if a topic of the same name was created since."""
        old, new = self._image, self._metadata.image
        if new is old:
            return
        self._image = new
        gone = frozenset(
            name
            for name in new.changed_topics(old)
            if name in old.topics and (name not in new.topics or new.topics[name].topic_id != old.topics[name].topic_id)
        )
        if gone:
            for shard in self._ready():
                shard.on_topics_deleted(gone)

    def _ready(self) -> list[GroupCoordinatorShard]:
        return [shard for shard in self._shards.values() if not shard.is_loading]

    # -- requests ------------------------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupCoordinatorShard:
        """Return the shard of a group.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while it loads, NOT_COORDINATOR if another broker is
        coordinator.
        """
        self._on_new_metadata_image()
        shard = self._shards.get(partition_for(group_id, self._partition_count))
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator)
        if shard.is_loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return shard

    def has_room_for(self, size_bytes: int) -> bool:
        """Return whether a member of that size fits into `queued.max.request.bytes`, together with all others."""
        limit_bytes = self._metadata.config.queued_max_request_bytes
        return limit_bytes < 0 or size_bytes + sum(shard.size_bytes for shard in self._shards.values()) <= limit_bytes

    @property
    def loaded_shards(self) -> list[GroupCoordinatorShard]:
        """Return the shards that are loaded by now."""
        return self._ready()

    def shards(self) -> Iterable[GroupCoordinatorShard]:
        """Return all shards. Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while one loads."""
        if any(shard.is_loading for shard in self._shards.values()):
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return self._shards.values()

    async def find_coordinator(self, group_id: str) -> BrokerImage:
        """Return the coordinator of a group, after creating `__consumer_offsets` if it does not exist.

        Raises `KafkaError` COORDINATOR_NOT_AVAILABLE while the group's partition has no leader.
        """
        if OFFSETS_TOPIC not in self._metadata.image.topics:
            await self._create_topic()
        image = self._metadata.image
        partition = image.partition(TopicPartition(OFFSETS_TOPIC, partition_for(group_id, self._partition_count)))
        leader = None if partition is None else image.brokers.get(partition.leader)
        if leader is None:
            raise KafkaError(
                ErrorCode.coordinator_not_available,
                f"the partition of {OFFSETS_TOPIC} for {group_id!r} has no leader",
            )
        return leader

    @property
    def _partition_count(self) -> int:
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        return self._metadata.config.offsets_topic_num_partitions if topic is None else max(len(topic.partitions), 1)

    async def _create_topic(self) -> None:
        """Create `__consumer_offsets`; wait until as many brokers are registered as it needs for its replicas."""
        topic = offsets_topic(self._metadata.config)
        alive = len(self._metadata.image.brokers)
        if topic.replication_factor < min(alive, _DEFAULT_REPLICATION_FACTOR):
            _log.warning(
                "Creating %s with %d replicas although %d brokers are registered: groups are unavailable while a "
                "broker is down; set offsets.topic.replication.factor to 3",
                OFFSETS_TOPIC, topic.replication_factor, alive,
            )  # fmt: skip
        try:
            await self._create(topic)
        except (KafkaError, UnavailableError) as error:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{OFFSETS_TOPIC}: {error}") from error
