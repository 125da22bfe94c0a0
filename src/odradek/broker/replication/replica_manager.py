"""The replica manager: makes this broker lead and follow the partitions that the cluster's image assigns to it.

Opening a log takes milliseconds, so logs are opened, and get changed configurations, over many turns of the event loop;
`wait_until_applied` waits for them. A log is deleted only if the controller commands it, or a note in the metadata tree
says so (`stray_logs`). A log with another topic id than the image's is renamed: its folder ends with `-stray`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial

from odradek.broker.counters import TopicTraffic
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.directories.maintenance import MaintenanceJob
from odradek.broker.log.errors import CheckpointError, LogStorageError, OfflineDirectoryError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig, TopicLogConfigs
from odradek.broker.log.names import parent_of
from odradek.broker.log.write_scheduler import WriteScheduler
from odradek.broker.replication.alter_partition_manager import AlterPartitionManager
from odradek.broker.replication.damaged_logs import DamagedLogs
from odradek.broker.replication.follower import Follower
from odradek.broker.replication.machine.leader import LeaderReplication
from odradek.broker.replication.offline_logs import OfflineLogs
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.refused_appends import RefusedAppends
from odradek.broker.replication.replica_fetcher import ReplicaFetcherManager
from odradek.broker.replication.stray_logs import StrayLogs
from odradek.broker.turns import TURN_S
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import UNNAMED, ClusterImage, MetadataDelta, PartitionImage, TopicImage
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition
from odradek.runtime import Runtime

_log = logging.getLogger("odradek.broker")

LeadershipCallback = Callable[[TopicPartition, Partition | None], None]


class ReplicaManager:
    """The partitions of one broker. `apply` is called with every new image."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        logs: LogManager,
        *,
        alter_partition_manager: AlterPartitionManager,
        fetchers: ReplicaFetcherManager,
        stray_logs: StrayLogs,
        when_logs_change: Callable[[], None],
        write_scheduler: WriteScheduler,
    ) -> None:
        self.write_scheduler = write_scheduler
        self._alter_partition_manager = alter_partition_manager
        self._fetchers = fetchers
        self._stray_logs = stray_logs
        self._when_logs_change = when_logs_change
        self._config = config
        self._runtime = runtime
        self._logs = logs
        self._image = ClusterImage()
        self._log_configs = TopicLogConfigs()
        self._is_fenced = False
        self.refused = RefusedAppends()
        self._fenced: dict[TopicPartition, LeaderReplication] = {}
        """The replication state of partitions that were led when the fence closed, and are not led again yet."""
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.traffic: dict[str, TopicTraffic] = {}
        self._offline = OfflineLogs(try_again=self._apply_again)
        self.damaged = DamagedLogs(runtime, logs, config, lambda: self._image, self.get, when_logs_change)
        self._followers: dict[TopicPartition, Follower] = {}
        self._to_apply: deque[TopicPartition] = deque()
        """The replicas to open, or to apply a configuration to."""
        self._applying: asyncio.Handle | None = None
        """The next turn that opens some of them."""
        self._waiters: list[asyncio.Future[None]] = []
        self._callbacks: list[LeadershipCallback] = []
        self._maintenance_timer: asyncio.TimerHandle | None = None
        self._prepared: MaintenanceJob | None = None
        """A maintenance job that is being prepared, over several turns."""
        self._maintaining: asyncio.Future[None] | None = None

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition, if this broker leads it."""
        return self.leader_or_none(*topic_partition)

    def leader_or_none(self, topic: str, partition: int) -> Partition | None:
        """Return the partition, if this broker leads it."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def leader(self, topic: str, partition: int) -> Partition:
        """Return the partition that this broker leads.

        Raises `KafkaError` KAFKA_STORAGE_ERROR if its log is offline, UNKNOWN_TOPIC_OR_PARTITION if the image does not
        have it, else NOT_LEADER_OR_FOLLOWER.
        """
        partitions = self._by_topic.get(topic)
        found = None if partitions is None else partitions.get(partition)
        if found is None:
            raise self._absence_error(TopicPartition(topic, partition))
        return found

    def replica(self, topic: str, partition: int) -> Partition | Follower:
        """Return the partition that this broker leads or follows. Raises `KafkaError` if it does neither."""
        return self._followers.get(TopicPartition(topic, partition)) or self.leader(topic, partition)

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition that this broker leads or follows. Raises `KafkaError` if it does neither."""
        return self.replica(topic, partition).log

    def current_leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return `(leader id, leader epoch)` by the image, None without a leader, for clients with old metadata."""
        image = self._image.partition(TopicPartition(topic, partition))
        return None if image is None or not image.has_leader else (image.leader, image.leader_epoch)

    @property
    def offline_count(self) -> int:
        """The number of this broker's replicas whose logs cannot be used."""
        return len(self._offline) + sum(each.log.failure is not None for each in (*self, *self._followers.values()))

    @property
    def followers(self) -> Mapping[TopicPartition, Follower]:
        """The partitions that this broker follows."""
        return self._followers

    def stable_offset(self, key: TopicPartition) -> int | None:
        """Return the last stable offset, up to which a log may be compacted; None without a replica that stays here."""
        replica = None if key in self._logs.futures else self.appender(key)
        return None if replica is None else replica.last_stable_offset

    def appender(self, key: TopicPartition) -> Partition | Follower | None:
        """Return what appends to the partition's log, if this broker leads or follows it."""
        return self.get(key) or self._followers.get(key)

    def _high_watermark(self, key: TopicPartition) -> int | None:
        replica = self.appender(key)
        return None if replica is None else replica.high_watermark

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions.values()

    def on_leadership(self, callback: LeadershipCallback) -> None:
        self._callbacks.append(callback)
        for partition in tuple(self):
            callback(partition.topic_partition, partition)

    def _absence_error(self, topic_partition: TopicPartition) -> KafkaError:
        offline = self._offline.get(topic_partition)
        if offline is not None:
            return KafkaError(ErrorCode.kafka_storage_error, str(offline))
        if self._image.partition(topic_partition) is None:
            return KafkaError(ErrorCode.unknown_topic_or_partition)
        return KafkaError(ErrorCode.not_leader_or_follower)

    # ---- following the image ------------------------------------------------------------------------------------

    def log_config(self, topic: str) -> LogConfig:
        """Return the configuration of the logs of `topic` by the current image (see `TopicLogConfigs`)."""
        return self._log_configs.of(topic, self._image.topics.get(topic), self._config)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply another configuration of the broker, with the next `apply` also to the logs of every topic."""
        self._config = config
        for topic in self._image.topics.values():
            self._apply_configuration_later(topic)  # followers as well: num.replica.fetchers may have changed

    def apply(self, delta: MetadataDelta) -> None:
        """Lead and follow the partitions that the new image assigns to this broker, and no others."""
        self._image = delta.new
        for name in delta.topics:
            before, after = delta.old.topics.get(name), delta.new.topics.get(name)
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._end_topic(before)
                before = None
            if after is not None:
                self._apply_topic(after, before)
        if delta.old.brokers.keys() - delta.new.brokers.keys():
            for partition in tuple(self):
                partition.brokers_changed()
        self._begin_to_apply()

    def fence(self) -> None:
        """Lead nothing until `unfence`, whatever the image says: other brokers may consider this one dead."""
        self._is_fenced = True
        for partition in tuple(self):
            self._fenced[partition.topic_partition] = partition.replication
            self._resign(partition.topic_partition, KafkaError(ErrorCode.not_leader_or_follower))

    def unfence(self) -> None:
        """Lead the partitions again that the image assigns to this broker."""
        if self._is_fenced:
            self._is_fenced = False
            for topic in self._image.topics.values():
                self._apply_topic(topic)
            self._begin_to_apply()

    async def wait_until_applied(self) -> None:
        """Return when each replica of the image is offline, or open with its configuration.

        Later images may prolong the wait.
        """
        if self._to_apply:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _apply_again(self, keys: Sequence[TopicPartition]) -> None:
        self._to_apply.extend(keys)
        self._begin_to_apply()

    def _begin_to_apply(self) -> None:
        if self._to_apply and self._applying is None:
            self._apply_next_replicas()

    def _apply_next_replicas(self) -> None:
        """Open logs for `TURN_S` in each turn of the event loop, until all are open."""
        self._applying, clock = None, self._runtime.clock
        until = clock.monotonic() + TURN_S
        while self._to_apply:
            self._apply_replica(self._to_apply.popleft())
            if clock.monotonic() >= until and self._to_apply:
                self._applying = asyncio.get_running_loop().call_soon(self._apply_next_replicas)
                return
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _apply_topic(self, topic: TopicImage, before: TopicImage | None = None) -> None:
        """Apply a topic's image, and a changed configuration later; skip unchanged partitions that are online."""
        leader_partitions = self._by_topic.get(topic.name, {})
        for number in sorted(leader_partitions.keys() - topic.partitions.keys()):
            self._resign(TopicPartition(topic.name, number), KafkaError(ErrorCode.unknown_topic_or_partition))
        known: Mapping[int, PartitionImage] = {} if before is None else before.partitions
        if before is None or not before.has_same_config(topic):
            self._apply_configuration_later(topic)
        offline = {key.partition for key in self._offline if key.topic == topic.name}
        for number, image in topic.partitions.items():
            if known.get(number) is not image or number in offline:
                key = TopicPartition(topic.name, number)
                self._apply_partition(topic, key, image)
                if self.damaged.is_damaged(key):
                    self._when_logs_change()  # whether the damaged log is offline depends on the rest of the ISR

    def _apply_configuration_later(self, topic: TopicImage) -> None:
        self._to_apply.extend(TopicPartition(topic.name, number) for number in topic.partitions)

    def _apply_partition(self, topic: TopicImage, key: TopicPartition, image: PartitionImage) -> None:
        if self._is_leader(image):
            partition = self.get(key)
            if partition is None:
                self._remove_follower(key)
                self._to_apply.append(key)
            else:
                partition.update(image)
            return
        self._resign(key, KafkaError(ErrorCode.not_leader_or_follower))
        if not self._is_follower(image):
            self._remove_follower(key)
        elif (follower := self._followers.get(key)) is None or self.damaged.may_be_copied(key, image):
            self._remove_follower(key)
            self._to_apply.append(key)
        else:
            follower.update(image)
            self._fetchers.add_fetcher(follower)

    def _apply_replica(self, key: TopicPartition) -> None:
        """Update the configuration of a replica's log; open the log and lead or follow, if the image still says so."""
        topic, image = self._image.topics.get(key.topic), self._image.partition(key)
        if topic is None or image is None:
            return
        self._logs.update_config(key)
        if self._is_leader(image) and self.get(key) is None:
            self._remove_follower(key)
            log = self._open_log(key, topic, image)
            if log is not None:
                self._make_leader(key, topic, image, log)
        elif self._is_follower(image) and key not in self._followers:
            log = self._open_log(key, topic, image)
            if log is not None:
                self._make_follower(key, topic, image, log)
        else:
            self._apply_partition(topic, key, image)  # the high watermark depends on min.insync.replicas

    def _open_log(self, key: TopicPartition, topic: TopicImage, image: PartitionImage) -> Log | None:
        """Return the partition's log; if it cannot be opened, add it to the offline logs and return None."""
        is_copied = image.has_leader and self._config.broker_id not in (image.leader, *image.isr)
        topic_id = None if topic.topic_id == UNNAMED else topic.topic_id
        now_ms = self._runtime.clock.now_ms()
        try:
            if topic_id is not None and self._logs.topic_id(key) not in (None, topic_id):
                self._logs.rename_to_stray(key, "of another topic than the metadata's of the same name")
            self.damaged.rename_to_stray(key, image)
            log = self._logs.get_or_create(key, topic_id=topic_id, now_ms=now_ms, is_copied=is_copied)
            if log.failure is not None:
                raise LogStorageError(log.failure)
        except StorageError as error:
            if self._offline.add(key, error) and not isinstance(
                error, OfflineDirectoryError
            ):  # a log line reported the directory
                _log.error("Partition %s is offline: %s", key, error)
            return None
        if self._offline.drop(key):
            _log.info("Partition %s is online again", key)
            self._when_logs_change()
        return log

    def _make_leader(self, key: TopicPartition, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        self.refused.move(key, (topic.topic_id, key.partition), to=log.writer.refused)
        partition = Partition(
            topic_partition=key,
            topic_id=topic.topic_id,
            log=log,
            image=image,
            write_scheduler=self.write_scheduler,
            alter_partition_manager=self._alter_partition_manager,
            traffic=self.traffic.setdefault(topic.name, TopicTraffic()),
            before=self._fenced.pop(key, None),
        )
        self._by_topic.setdefault(topic.name, {})[key.partition] = partition
        for callback in self._callbacks:
            callback(key, partition)

    def _make_follower(self, key: TopicPartition, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        follower = self._followers[key] = Follower(
            topic_partition=key,
            topic_id=topic.topic_id,
            log=log,
            image=image,
            logs=self._logs,
            write_scheduler=self.write_scheduler,
            on_log_failed=self._follower_failed,
        )
        self._fetchers.add_fetcher(follower)

    def _remove_follower(self, key: TopicPartition) -> None:
        follower = self._followers.pop(key, None)
        if follower is not None:
            self._fetchers.remove_fetcher(key)
            follower.stop()

    def _follower_failed(self, follower: Follower, error: StorageError) -> None:
        """Take a follower offline until the broker restarts: its disk has failed."""
        _log.error("Partition %s is offline: %s", follower.topic_partition, error)
        self._remove_follower(follower.topic_partition)
        self._offline.add(follower.topic_partition, error)
        self._when_logs_change()

    def logs_failed(self, partitions: Set[TopicPartition], error: StorageError) -> None:
        """Stop leading and following partitions until the broker restarts: the disk of their logs has failed."""
        for key in sorted(partitions):  # the order of a set differs by process
            self._resign(key, KafkaError(ErrorCode.kafka_storage_error, str(error)))
            self._remove_follower(key)
            if (image := self._image.partition(key)) is not None and self._config.broker_id in image.replicas:
                self._offline.add(key, error)

    def _is_leader(self, image: PartitionImage) -> bool:
        return image.leader == self._config.broker_id and not self._is_fenced

    def _is_follower(self, image: PartitionImage) -> bool:
        """Return whether this broker has a replica and is not the leader; False if the partition's state is unknown."""
        me = self._config.broker_id
        return image.is_readable and me in image.replicas and image.leader != me

    def _resign(self, topic_partition: TopicPartition, reason: KafkaError) -> None:
        partitions = self._by_topic.get(topic_partition.topic, {})
        partition = partitions.pop(topic_partition.partition, None)
        if partition is None:
            return
        if not partitions:
            del self._by_topic[topic_partition.topic]
        partition.resign(reason)
        for callback in self._callbacks:
            callback(topic_partition, None)

    def _end_topic(self, topic: TopicImage) -> None:
        """Stop leading and following a topic's partitions; only a command of the controller deletes their logs."""
        self.traffic.pop(topic.name, None)
        for number in topic.partitions:
            topic_partition = TopicPartition(topic.name, number)
            self.stop_replica(topic_partition, delete=False)

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop leading and following a partition until another image has it; with `delete`, delete its log.

        `sync_deleted` puts the deletion on the disk.
        """
        self._resign(topic_partition, KafkaError(ErrorCode.unknown_topic_or_partition))
        self._remove_follower(topic_partition)
        self._offline.drop(topic_partition)
        self._fenced.pop(topic_partition, None)
        if delete:
            try:
                self._logs.delete(topic_partition, self._runtime.clock.now_ms())
            except StorageError as error:
                _log.error("Failed to delete the log of %s: %s", topic_partition, error)
            if self._logs.deleted.left:
                self._stray_logs.look()

    async def sync_deleted(self) -> None:
        """Return when each deletion is on the disk, or noted in the tree. Raises `OdradekError` if the tree fails."""
        await self._runtime.disk.submit(self._logs.deleted.sync, background=True)
        await self._stray_logs.note_left()

    def replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return why another replica should lead, for the controller.

        KAFKA_STORAGE_ERROR if the log cannot be opened, has failed, or is damaged while another broker can lead;
        INELIGIBLE_REPLICA if its disk is full; else NONE.
        """
        log = self._logs.get(topic_partition)
        if (
            topic_partition in self._offline
            or (log is not None and log.failure is not None)
            or self.damaged.is_replaceable(topic_partition)
        ):
            return ErrorCode.kafka_storage_error
        is_full = log is not None and self.write_scheduler.full_disks.is_full(parent_of(log.directory))
        return ErrorCode.ineligible_replica if is_full else ErrorCode.none

    # ---- maintenance and shutdown -------------------------------------------------------------------------------

    def start_maintenance(self) -> None:
        """Run retention, expiry, flushes and checkpoints periodically, until `stop`."""
        config = self._config
        interval_ms = min(
            config.log_retention_check_interval_ms,
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_scheduler_interval_ms,
        )
        self._maintenance_timer = asyncio.get_running_loop().call_later(interval_ms / 1000, self._maintain)

    def _maintain(self) -> None:
        self.start_maintenance()
        now_ms = self._runtime.clock.now_ms()
        begun = self._logs.maintenance.begin_in_steps(now_ms, high_watermark=self._high_watermark)
        if begun is not None:
            self._prepared, steps = begun
            self._prepare_some(steps)

    def _prepare_some(self, steps: Iterator[None]) -> None:
        """Prepare maintenance for `TURN_S` in each turn of the event loop, then run it."""
        job, clock = self._prepared, self._runtime.clock
        if job is None:
            return
        until = clock.monotonic() + TURN_S
        for _ in steps:
            if clock.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._prepare_some, steps)
                return
        self._prepared = None
        if job.is_empty:
            self._finish_maintenance(job)
        else:
            self._run_maintenance(job)

    def _run_maintenance(self, job: MaintenanceJob) -> None:
        run = partial(job.run, self._runtime.clock.monotonic)
        self._maintaining = self._runtime.disk.submit(run, background=True)
        self._maintaining.add_done_callback(partial(self._finish_maintenance, job))

    def _finish_maintenance(self, job: MaintenanceJob, running: "asyncio.Future[None] | None" = None) -> None:
        if running is not None and not running.cancelled() and (error := running.exception()) is not None:
            _log.warning("Failed to flush and delete segments, retrying with the next maintenance: %s", error)
        for took_ms in job.flush_times_ms:
            self.write_scheduler.flush_time.observe(took_ms)
        plan = self._logs.maintenance.finish(job)  # also after `stop`: logs that were not flushed need recovery
        if plan is not None and self._maintenance_timer is not None:
            writing = self._runtime.disk.submit(partial(self._logs.checkpoints.write, plan), background=True)
            writing.add_done_callback(self._checkpoints_written)

    def _checkpoints_written(self, writing: "asyncio.Future[None]") -> None:
        if not writing.cancelled() and (error := writing.exception()) is not None:
            _log.warning("Failed to write checkpoints: %s; recovery after a crash takes longer", error)
            if isinstance(error, CheckpointError):
                self._logs.checkpoints.write_failed(error)

    async def stop(self) -> None:
        """Write the pending appends, and stop leading and following. The logs stay open."""
        reason = KafkaError(ErrorCode.not_leader_or_follower)
        self._offline.stop()
        self.write_scheduler.full_disks.stop()
        self.damaged.stop()
        self._to_apply.clear()
        self._apply_next_replicas()
        prepared = self._stop_maintenance()
        for partition in self:
            partition.refuse_appends(reason)
        await self.write_scheduler.drain()
        if prepared is not None:
            self._run_maintenance(prepared)  # closing a log requires the flushes that the job has taken over
        if self._maintaining is not None:
            await asyncio.wait([self._maintaining])  # it writes the same files as closing a log
        for partition in tuple(self):
            self._resign(partition.topic_partition, reason)
        for key in tuple(self._followers):
            self._remove_follower(key)

    def kill(self) -> None:
        """Stop without writing anything."""
        self._to_apply.clear()
        self._apply_next_replicas()
        self._offline.stop()
        self.write_scheduler.full_disks.stop()
        self.damaged.stop()
        self._stop_maintenance()
        self.write_scheduler.kill()

    def _stop_maintenance(self) -> MaintenanceJob | None:
        """Stop the timer, and return the job that was being prepared, if any."""
        if self._maintenance_timer is not None:
            self._maintenance_timer.cancel()
            self._maintenance_timer = None
        prepared, self._prepared = self._prepared, None
        return prepared
