"""Submits the ISR changes of the partitions that this broker leads to the controller, and logs the resulting ISRs.

One AlterPartition request at a time has the changes (`IsrChange`) of many partitions. A change is sent again until the
controller accepts or refuses it, or the partition has another leader.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from typing import Final, TypeAlias

from odradek.broker.channel import Channel
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.alter_partition_requests import AlterPartitionRequests, ControllerChannel, WrittenIsr
from odradek.broker.replication.machine import IsrChange
from odradek.broker.replication.partition import PATIENCE_MS, Partition
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, first_names
from odradek.runtime import Clock

_log = logging.getLogger("odradek.broker")
_AWAITS_METADATA: Final = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    }
)
"""Errors of a leader whose metadata is older than the controller's. The change stays pending until the next update of
the metadata, because the controller may have written it."""
_REFUSED: Final = frozenset({ErrorCode.ineligible_replica, ErrorCode.invalid_request})
_INELIGIBLE_MS: Final = 2_000
"""The time after which a follower that was ineligible is proposed again: its disk may be full for hours."""
_Changes: TypeAlias = dict[TopicPartition, tuple[Partition, IsrChange]]


class AlterPartitionManager:
    """Submits ISR changes to the controller. `expansions` and `shrinks` count the changes that it has written."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        controller: ControllerChannel,
        *,
        check_fence: Callable[[], object],
    ) -> None:
        self.broker_id = metadata.broker_id
        self._metadata = metadata
        self._check_fence = check_fence
        self.max_lag_ms = metadata.config.replica_lag_time_max_ms
        self.expansions = 0
        self.shrinks = 0
        self.failed_updates = 0
        self._clock = clock
        self._requests = AlterPartitionRequests(metadata, controller)
        self._channel = Channel[_Changes](
            "AlterPartition requests", {}, self._send, pause=lambda backoff_s: controller.back_off(backoff_s)
        )
        self._timer: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """Return the monotonic time with which followers' lag is measured."""
        return int(self._clock.monotonic() * 1000)

    @property
    def live(self) -> Container[int]:
        return self._metadata.image.brokers

    # ---- lagging followers --------------------------------------------------------------------------------------

    def start(self, partitions: Iterable[Partition]) -> None:
        """Check for lagging followers twice per `replica.lag.time.max.ms`, until `stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.max_lag_ms / 2000, self._check, partitions)

    def _check(self, partitions: Iterable[Partition]) -> None:
        self.start(partitions)
        for partition in tuple(partitions):
            partition.check_lag()

    def stop(self) -> None:
        """Stop checking, and drop the pending changes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._channel.close()
        self._channel.waiting.clear()

    @property
    def pending(self) -> int:
        """The number of partitions whose change is not in flight yet."""
        return len(self._channel.waiting)

    # ---- requests to the controller -----------------------------------------------------------------------------

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self._channel.waiting[partition.topic_partition] = partition, change
        self._channel.wake()

    async def _send(self, waiting: _Changes) -> bool:
        """Send one request; return False if changes have to be sent again."""
        pending = dict(waiting)
        waiting.clear()
        # Drop the changes of partitions that have another leader, or that the controller has updated meanwhile.
        pending = {key: (each, change) for key, (each, change) in pending.items() if each.is_pending_isr(change)}
        growing = {key for key, (each, change) in pending.items() if len(change.isr) > len(each.isr)}
        try:
            results = await self._requests.send({key: change for key, (_, change) in pending.items()})
        except OdradekError as error:
            _log.info("Failed to update the ISR of %d partitions, retrying: %s", len(pending), error)
            results = {}
        except Exception:
            # Changes that are not sent again would be pending forever.
            _log.exception("Failed to update the ISR of %d partitions", len(pending))
            results = {}
        self._check_fence()  # a smaller ISR may commit records, which are then acknowledged
        written = {key for key, result in results.items() if isinstance(result, WrittenIsr)}
        self.expansions += len(written & growing)
        self.shrinks += len(written - growing)
        if written:
            text = [f"{key} {list(each.isr)}" for key, each in results.items() if isinstance(each, WrittenIsr)]
            _log.info("ISR of %d partitions updated: %s", len(text), first_names(text))
        unsettled = [each for each in pending.items() if not self._settle(*each[1], results.get(each[0]))]
        for key, each in unsettled:
            waiting.setdefault(key, each)
        return not unsettled

    def _settle(self, partition: Partition, change: IsrChange, result: "WrittenIsr | KafkaError | None") -> bool:
        """Handle the result of a change; return False if it has to be sent again."""
        if isinstance(result, WrittenIsr):
            if result.leader_epoch == change.leader_epoch:
                partition.handle_isr_change(change, isr=result.isr, partition_epoch=result.partition_epoch)
            return True
        if result is None or result.code not in _AWAITS_METADATA | _REFUSED:
            return False
        self.failed_updates += 1
        is_ineligible = result.code is ErrorCode.ineligible_replica
        level = logging.DEBUG if is_ineligible else logging.INFO
        _log.log(level, "Failed to update the ISR of %s to %s: %s", partition.topic_partition, list(change.isr), result)
        if result.code in _REFUSED:
            partition.handle_isr_rejection(change, patience_ms=_INELIGIBLE_MS if is_ineligible else PATIENCE_MS)
        return True
