"""Submits the ISR changes of the partitions that this broker leads to the controller, and logs the resulting ISRs.

One AlterPartition request at a time has the changes (`IsrChange`) of many partitions. A change is sent again until the
controller accepts or refuses it, or the partition has another leader.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.machine.leader import IsrChange
from odradek.broker.replication.partition import PATIENCE_MS, Partition
from odradek.broker.retrying_sender import RetryingSender
from odradek.metadata.image import ClusterImage
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.nodes import RECOVERED
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, first_names
from odradek.model.probes import perturb
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import Message
from odradek.runtime import Clock


class WrittenIsr(NamedTuple):
    """A partition's ISR and leader as the controller wrote them to the metadata tree."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


IsrResult = WrittenIsr | KafkaError


class LocalController(Protocol):
    """The controller that runs in this broker."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, items: Mapping[TopicPartition, AlterPartitionItem]
    ) -> dict[TopicPartition, IsrResult]:
        """Decide on each partition's ISR, and return the results. Raises `KafkaError` if the request is refused."""


class ControllerChannel(Protocol):
    """Sends requests to the controller, whichever broker it is (`cluster.requests.controller_requests`)."""

    def local_controller(self) -> LocalController | None:
        """Return the controller if this broker is elected, else None."""

    async def send(self, api_key: ApiKey, message: Message) -> Any:
        """Send a request and return the response. Raises `UnavailableError` if there is none."""

    async def back_off(self, seconds: float) -> None:
        """Sleep, but not past the election of another controller."""


class AlterPartitionRequests:
    """Sends AlterPartition requests for one broker."""

    def __init__(self, metadata: MetadataCache, controller: ControllerChannel) -> None:
        self._metadata = metadata
        self._controller = controller

    async def send(self, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
        """Send one request, and return the results by partition; a change without a result must be sent again.

        Raises `KafkaError` if the request was refused, and `UnavailableError` without a response.
        """
        metadata = self._metadata
        image = metadata.image
        items = {
            key: AlterPartitionItem(
                isr=dict(zip(change.isr, change.broker_epochs, strict=True)),
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            for key, change in changes.items()
            if key.topic in image.topics
        }
        if not items:
            return {}
        controller = self._controller.local_controller()
        if controller is not None:
            return await controller.alter_partitions(metadata.broker_id, metadata.broker_epoch, items)
        message = {
            "broker_id": metadata.broker_id,
            "broker_epoch": metadata.broker_epoch,
            "topics": _encode(image, items),
        }
        answer = await self._controller.send(ApiKey.ALTER_PARTITION, message)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        return _decode(image, answer)


def _encode(image: ClusterImage, items: Mapping[TopicPartition, AlterPartitionItem]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for key, item in items.items():
        topic = topics.setdefault(key.topic, {"topic_id": image.topics[key.topic].topic_id, "partitions": []})
        topic["partitions"].append(
            {
                "partition_index": key.partition,
                "leader_epoch": item.leader_epoch,
                "new_isr": list(item.isr),
                "new_isr_with_epochs": [
                    {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in item.isr.items()
                ],
                "leader_recovery_state": item.leader_recovery_state,
                "partition_epoch": item.partition_epoch,
            }
        )
    return list(topics.values())


def _decode(image: ClusterImage, answer: Any) -> dict[TopicPartition, IsrResult]:
    results: dict[TopicPartition, IsrResult] = {}
    for topic in answer.topics:
        name = image.topic_names.get(topic.topic_id)
        for each in topic.partitions if name is not None else ():
            key = TopicPartition(name or "", each.partition_index)
            if each.error_code is ErrorCode.none:
                results[key] = WrittenIsr(each.leader_id, each.leader_epoch, tuple(each.isr), each.partition_epoch)
            else:
                results[key] = KafkaError(each.error_code)
    return results


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
        self._sender = RetryingSender[_Changes](
            "AlterPartition requests", {}, self._send, pause=lambda backoff_s: controller.back_off(backoff_s)
        )
        self._timer: asyncio.TimerHandle | None = None

    def monotonic_ms(self) -> int:
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
        self._sender.close()
        self._sender.waiting.clear()

    @property
    def pending(self) -> int:
        """The number of partitions whose change is not in flight yet."""
        return len(self._sender.waiting)

    # ---- requests to the controller -----------------------------------------------------------------------------

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self._sender.waiting[partition.topic_partition] = partition, change
        self._sender.wake()

    async def _send(self, waiting: _Changes) -> bool:
        """Send one request; return False if changes have to be sent again."""
        pending = dict(waiting)
        waiting.clear()
        # Drop the changes of partitions that have another leader, or that the controller has updated meanwhile.
        pending = {key: (each, change) for key, (each, change) in pending.items() if each.is_pending_isr(change)}
        growing = {key for key, (each, change) in pending.items() if len(change.isr) > len(each.isr)}
        try:
            results = await self._requests.send({key: change for key, (_, change) in pending.items()})
            self._check_fence()  # a smaller ISR may commit records, which are then acknowledged
            if perturb("replication: the response to an ISR change is lost"):
                results = {}
        except OdradekError as error:
            _log.info("Failed to update the ISR of %d partitions, retrying: %s", len(pending), error)
            results = {}
        except Exception:
            # Changes that are not sent again would be pending forever.
            _log.exception("Failed to update the ISR of %d partitions", len(pending))
            results = {}
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
