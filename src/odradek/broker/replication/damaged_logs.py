"""Replicas whose files are damaged: another in-sync replica leads, and this broker copies the good data back.

```
a reader, or compaction, finds an invalid batch ──► the segment is checked on the background thread ──► damaged
another replica is in sync    the log is reported as offline to the controller: another replica leads, and this one
                              leaves the ISR ──► its log is renamed to -stray, and copied anew from the leader
no other replica is           this broker still leads: reads of the damaged part fail with CORRUPT_MESSAGE
```
A follower that gets in sync later takes over. A log that is damaged again is not copied again, as its disk is not
reliable.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import DamagedFileError, LogStorageError, describe, is_passing
from odradek.broker.log.log import Log
from odradek.broker.log.recovery.segment_damage import DamageCheck
from odradek.broker.log.segments.segment import Segment
from odradek.broker.replication.partition import Partition
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import ClusterImage, PartitionImage
from odradek.model import TopicPartition
from odradek.runtime import Runtime

_log = logging.getLogger("odradek.broker")
_LOOK_S: Final = 1.0
_TRUST_S: Final = 60.0
"""The time for which a segment without damage is not checked again."""


class DamagedLogs:
    """The damaged logs of one broker. `when_found` is called when a log is found damaged, or can now be replaced."""

    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        config: BrokerConfig,
        image: Callable[[], ClusterImage],
        leader_or_none: Callable[[TopicPartition], Partition | None],
        when_found: Callable[[], None],
    ) -> None:
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._logs = logs
        self._broker_id = config.broker_id
        self._recent_fetch_ms = 4 * config.replica_fetch_wait_max_ms
        """A follower that has not fetched for this time may be dead, though it is still registered."""
        self._image = image
        self._leader_or_none = leader_or_none
        self._when_found = when_found
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch in which the damage was found."""
        self._replaced: set[TopicPartition] = set()
        self._has_stopped = False

    def suspect(self, key: TopicPartition, log: Log, segment: Segment) -> bool:
        """Start a check of a segment on the background thread; return False if a recent check found no damage."""
        checked_at_s = segment.checked_at_s
        if self._has_stopped or (checked_at_s is not None and self._clock.monotonic() < checked_at_s + _TRUST_S):
            return False
        suspicion = DamageCheck.of(segment)
        check = self._disk.submit(suspicion.run, background=True)
        check.add_done_callback(partial(self._checked, key, log, suspicion))
        return True

    def _checked(
        self, key: TopicPartition, log: Log, suspicion: DamageCheck, check: "asyncio.Future[DamagedFileError | None]"
    ) -> None:
        segment = suspicion.segment
        if self._has_stopped or check.cancelled():
            return
        if (error := check.exception()) is not None:
            log.suspected.check_failed(segment)
            if not is_passing(error):
                _log.warning("%s cannot be checked for damage: %s", segment.log.path, describe(error))
            return
        damage = check.result()
        if damage is None:
            segment.checked_at_s = self._clock.monotonic()
        if log.suspected.checked(segment, suspicion.size, damage) and self._logs.get(key) is log:
            partition = self._image().partition(key)
            self._epochs[key] = -1 if partition is None else partition.leader_epoch
            self._report(key, log)
            self._when_found()
            self._look_later(key)

    def _look_later(self, key: TopicPartition) -> None:
        """While this broker leads, check once a second whether a live in-sync follower can take over."""
        if self._leader_or_none(key) is not None and self.is_damaged(key):
            asyncio.get_running_loop().call_later(_LOOK_S, self._look, key)

    def _look(self, key: TopicPartition) -> None:
        if not self._has_stopped:
            if self.is_replaceable(key):
                self._when_found()
            self._look_later(key)

    def is_damaged(self, key: TopicPartition) -> bool:
        log = self._logs.get(key)
        return log is not None and log.suspected.damage is not None

    def is_replaceable(self, key: TopicPartition) -> bool:
        """Return whether the log is damaged and another live broker is in sync and, if this one leads, fetches."""
        partition = self._image().partition(key) if self.is_damaged(key) else None
        return partition is not None and self._has_successor(key, partition)

    def _has_successor(self, key: TopicPartition, partition: PartitionImage) -> bool:
        others = [each for each in partition.isr if each != self._broker_id and each in self._image().brokers]
        leader = self._leader_or_none(key)
        if leader is None:
            return bool(others)
        since_ms = int(self._clock.monotonic() * 1000) - self._recent_fetch_ms
        remotes = leader.replication.remotes
        return any(each in remotes and remotes[each].last_fetch_ms >= max(since_ms, 0) for each in others)

    def may_be_copied(self, key: TopicPartition, partition: PartitionImage) -> bool:
        """Return whether the partition's log is damaged, another broker leads, and this one is out of the ISR.

        The leader epoch must be later than the one in which the damage was found: the leader of that epoch may still be
        adding this broker to the ISR.
        """
        is_follower = partition.has_leader and self._broker_id not in (partition.leader, *partition.isr)
        return self.is_damaged(key) and is_follower and partition.leader_epoch > self._epochs.get(key, -1)

    def rename_to_stray(self, key: TopicPartition, partition: PartitionImage) -> None:
        """Rename the log to `-stray` if `may_be_copied`. Raises `LogStorageError` the second time for a partition."""
        if not self.may_be_copied(key, partition):
            return
        damage = self._logs.logs[key].suspected.damage
        if key in self._replaced:
            raise LogStorageError(
                f"{damage}: the log was copied anew since this broker started, and is damaged again; check its disk, "
                "then restart the broker"
            )
        self._logs.rename_to_stray(key, f"damaged: {damage}")
        self._replaced.add(key)

    def _report(self, key: TopicPartition, log: Log) -> None:
        damage = log.suspected.damage
        if self.is_replaceable(key):
            _log.error("%s is damaged: %s; another in-sync replica leads, and this one is copied anew", key, damage)
            return
        _log.error(
            "%s is damaged: %s; no other replica is in sync: reads of that place fail with CORRUPT_MESSAGE, and an "
            "in-sync replica takes over as soon as there is one. `odradek log verify %s` shows the damage; "
            "`kafka-delete-records` gives up the records before an offset behind it",
            key,
            damage,
            log.directory,
        )

    def stop(self) -> None:
        self._has_stopped = True
