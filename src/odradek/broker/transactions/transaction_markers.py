"""Kafka's `TransactionMarkerChannelManager`: writes the markers of ended transactions to their partitions' leaders.

```
SendMarkers ─▶ by leader: one WriteTxnMarkers in flight per broker, with the markers that have gathered meanwhile;
               this broker's own partitions are written without a connection
errors      ─▶ again after a back-off, to the leader of that time; a deleted partition is dropped
all written ─▶ MarkersWrittenRequest to the state machine
```
A transaction is dropped when its coordinator is unloaded: the next one sends its markers again, if they are still due.
A late marker of transaction version 0 or 1 would end the producer's next transaction, which has the same epoch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.partition import ACKS_ALL
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.retrying_sender import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, RetryingSender
from odradek.broker.transactions.machine.messages import SendMarkers
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.model.names import numbers_by_topic
from odradek.model.probes import perturb
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.runtime import Clock
from odradek.runtime.rate_limited_log import RateLimitedLog


class Marker(Struct, frozen=True, kw_only=True):
    """The end of one producer's transaction, and its partitions on one broker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Iterable[TopicPartition]


WhenAppended = Callable[..., None]
"""Called with partition, producer id, end offset and `is_commit` of each appended marker."""
Results = dict[int, dict[TopicPartition, ErrorCode]]
"""The errors by producer id and partition."""


class MarkerWriter:
    """Writes markers; `when_appended` is called for each one that was appended."""

    def __init__(self, partitions: ReplicaManager, clock: Clock, when_appended: WhenAppended) -> None:
        self._partitions = partitions
        self._clock = clock
        self._when_appended = when_appended

    async def write(self, markers: Iterable[Marker]) -> Results:
        """Append markers, and return their errors when all are committed or have failed.

        As in Kafka, markers of one producer for one partition share one error.
        """
        writes = _Writes()
        now_ms = self._clock.now_ms()
        named = ((marker, topic_partition) for marker in markers for topic_partition in marker.partitions)
        async for marker, topic_partition in cooperatively(named, lambda _: 8):
            self._begin(writes, marker, topic_partition, now_ms)
        return await writes.finished()

    def _begin(self, writes: "_Writes", marker: Marker, topic_partition: TopicPartition, now_ms: int) -> None:
        errors = writes.results.setdefault(marker.producer_id, {})
        errors[topic_partition] = ErrorCode.none
        try:
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request)
            partition = self._partitions.leader(*topic_partition)
            kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
            info = partition.append_marker(
                EndTransactionMarker(kind, marker.coordinator_epoch),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_version=marker.transaction_version,
                now_ms=now_ms,
            )
        except KafkaError as error:
            errors[topic_partition] = error.code
        else:
            self._when_appended(topic_partition, marker.producer_id, info.last_offset + 1, is_commit=marker.is_commit)
            writes.waiting += 1
            waiter = partial(writes.acknowledged, errors, topic_partition)
            partition.when_acknowledged(info, acks=ACKS_ALL, waiter=waiter)


class _Writes:
    """The markers of one request that are being written."""

    def __init__(self) -> None:
        self.results: Results = {}
        self.waiting = 0
        self._finished: asyncio.Future[None] | None = None
        """Set when all markers have begun: those of the first turns may be committed earlier."""

    async def finished(self) -> Results:
        """Return each producer's errors, once all markers are committed or have failed."""
        if self.waiting:
            self._finished = asyncio.get_running_loop().create_future()
            await self._finished
        return self.results

    def acknowledged(
        self, errors: dict[TopicPartition, ErrorCode], topic_partition: TopicPartition, error: KafkaError | None
    ) -> None:
        if error is not None:
            errors[topic_partition] = error.code
        self.waiting -= 1
        if not self.waiting and self._finished is not None and not self._finished.done():
            self._finished.set_result(None)


_PURPOSE: Final = "transaction markers"
_MOST_PARTITIONS: Final = 1000
"""A request that has this many partitions gets no more markers, as brokers limit the entries of a request."""
_DROPPED: Final = frozenset({ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version})
"""Errors of partitions that cannot have records of a transaction."""
_FENCED: Final = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})
"""Errors that end the transaction's markers: a later epoch of the producer or coordinator is known."""
_EXPECTED: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
    }
)
_log = logging.getLogger("odradek.transactions")


class _Ending(Struct, eq=False, kw_only=True):
    """An ended transaction whose markers are being written; `waiting` are the partitions without one."""

    end: SendMarkers
    coordinator: object
    coordinator_epoch: int
    waiting: set[TopicPartition]
    backoff_s: float = FIRST_BACKOFF_S
    is_completed: asyncio.Event = field(default_factory=asyncio.Event)


_Queue: TypeAlias = deque[tuple[_Ending, list[TopicPartition]]]


class TransactionMarkers:
    """The markers that one broker's coordinators send.

    `coordinator` returns a transactional id's coordinator on this broker and its leader epoch, or None.
    `completed` reports a transaction to the state machine, and returns a future of the commit of its record, which
    raises `KafkaError` if that cannot be written.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        connections: BrokerConnections,
        writer: MarkerWriter,
        *,
        coordinator: Callable[[str], tuple[object, int] | None],
        completed: Callable[[SendMarkers], Awaitable[object]],
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._writer = writer
        self._coordinator = coordinator
        self._completed = completed
        self._endings: dict[str, _Ending] = {}
        self._senders: dict[int, RetryingSender[_Queue]] = {}
        """The senders of markers to leaders, by broker id."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_stopped = False
        self._error_log = RateLimitedLog(_log)

    def send(self, end: SendMarkers) -> None:
        """Write the markers of an ended transaction, and report it when all are written."""
        found = self._coordinator(end.transactional_id)
        if found is None or self._has_stopped:
            return
        ending = _Ending(end=end, coordinator=found[0], coordinator_epoch=found[1], waiting=set(end.partitions))
        self._endings[end.transactional_id] = ending
        self._route(ending, sorted(end.partitions))  # not in the order of hashes: a seed must replay it

    @property
    def pending(self) -> int:
        """The number of transactions whose markers are being written."""
        return len(self._endings)

    async def wait_until_completed(self, transactional_id: str, within_s: float) -> None:
        """Wait until the completion of an ended transaction is in force, for at most `within_s`.

        It is as soon as its record is appended: replies to later requests wait for the commit of both records.
        """
        ending = self._endings.get(transactional_id)
        if ending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await ending.is_completed.wait()

    def stop(self) -> None:
        """Cancel all tasks; the next coordinators send the markers again."""
        self._has_stopped = True
        self._endings.clear()
        for sender in self._senders.values():
            sender.close()
        for task in tuple(self._tasks):
            task.cancel()

    def _is_current(self, ending: _Ending) -> bool:
        """Return whether its coordinator is still loaded, perhaps in a later epoch; else forget the transaction."""
        key = ending.end.transactional_id
        if self._endings.get(key) is not ending:
            return False
        found = self._coordinator(key)
        if found is None or found[0] is not ending.coordinator:
            del self._endings[key]
            return False
        ending.coordinator_epoch = found[1]
        return True

    def _route(self, ending: _Ending, partitions: Collection[TopicPartition]) -> None:
        """Queue the markers for the current leaders of `partitions`; drop deleted ones."""
        if not self._is_current(ending):
            return
        image, by_leader = self._metadata.image, dict[int, list[TopicPartition]]()
        leaderless = []
        for partition in partitions:
            known = image.partition(partition)
            if known is None:
                ending.waiting.discard(partition)
            elif known.leader in image.brokers:
                by_leader.setdefault(known.leader, []).append(partition)
            else:
                leaderless.append(partition)
        for broker_id, led in by_leader.items():
            markers = [(ending, led[at : at + _MOST_PARTITIONS]) for at in range(0, len(led), _MOST_PARTITIONS)]
            sender = self._senders.get(broker_id)
            if sender is None:
                name, send = f"transaction markers to broker {broker_id}", partial(self._send_to, broker_id)
                sender = self._senders[broker_id] = RetryingSender[_Queue](name, deque(), send)
            sender.waiting.extend(markers)
            sender.wake()
        if leaderless:
            self._try_again(ending, leaderless)
        self._complete_if_written(ending)

    def _try_again(self, ending: _Ending, partitions: Collection[TopicPartition]) -> None:
        backoff_s = ending.backoff_s
        ending.backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
        asyncio.get_running_loop().call_later(backoff_s, self._route, ending, partitions)

    async def _send_to(self, broker_id: int, queue: _Queue) -> bool:
        """Send one request with queued markers of a broker. Those that fail are queued again after a back-off."""
        current: list[tuple[_Ending, list[TopicPartition]]] = []
        count = 0
        while queue and count < _MOST_PARTITIONS:
            ending, some = queue.popleft()
            if self._is_current(ending):
                current.append((ending, some))
                count += len(some)
        if not current:
            return True
        results: Results = {}
        try:
            results = await self._write(broker_id, [_marker(ending, some) for ending, some in current])
            if perturb("transactions: the response to markers is lost"):
                results = {}
        except (KafkaError, UnavailableError) as error:
            self._error_log.log(str(broker_id), logging.INFO, "Markers for broker %d: %s", broker_id, error)
        except Exception:  # the markers are still due
            _log.exception("Failed to write transaction markers on broker %d; trying again", broker_id)
        for ending, some in current:
            self._settle(ending, some, results.get(ending.end.producer.producer_id, {}))
        return True

    async def _write(self, broker_id: int, markers: list[Marker]) -> Results:
        if broker_id == self._metadata.broker_id:
            return await self._writer.write(markers)
        message = {"markers": [_message(each) for each in markers]}
        brokers = self._metadata.image.brokers
        answer = await self._connections.request(
            brokers, broker_id, ApiKey.WRITE_TXN_MARKERS, message, purpose=_PURPOSE
        )
        return {
            marker.producer_id: {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in marker.topics
                for each in topic.partitions
            }
            for marker in answer.markers
        }

    def _settle(
        self, ending: _Ending, partitions: list[TopicPartition], errors: dict[TopicPartition, ErrorCode]
    ) -> None:
        """Forget the partitions whose markers are written, and try the others again."""
        again = []
        for partition in partitions:
            error = errors.get(partition, ErrorCode.request_timed_out)
            if error is ErrorCode.none or error in _DROPPED:
                ending.waiting.discard(partition)
            elif error in _FENCED:
                self._drop(ending, partition, error)
                return
            else:
                again.append(partition)
                level = logging.INFO if error in _EXPECTED else logging.ERROR
                text = "The marker of %r for %s failed: %s; trying again"
                self._error_log.log(
                    f"{partition} {error}", level, text, ending.end.transactional_id, partition, error.name
                )
        if again:
            self._try_again(ending, again)
        self._complete_if_written(ending)

    def _drop(self, ending: _Ending, partition: TopicPartition, error: ErrorCode) -> None:
        """Give up the markers of a transaction: its partition knows a later epoch."""
        if self._is_current(ending):
            del self._endings[ending.end.transactional_id]
            _log.warning(
                "Gave up the markers of %r: %s answers %s, so another coordinator or producer has replaced it",
                ending.end.transactional_id, partition, error.name,
            )  # fmt: skip

    def _complete_if_written(self, ending: _Ending) -> None:
        if not ending.waiting and self._is_current(ending):
            self._run(self._complete(ending), f"completing {ending.end.transactional_id}")

    async def _complete(self, ending: _Ending) -> None:
        while self._is_current(ending):
            try:
                committed = self._completed(ending.end)
                ending.is_completed.set()
                await committed
            except KafkaError as error:  # also while the coordinator loads
                self._error_log.log("completion", logging.INFO, "A completed transaction is not recorded: %s", error)
                await asyncio.sleep(ending.backoff_s)
                ending.backoff_s = min(ending.backoff_s * 2, LONGEST_BACKOFF_S)
            else:
                break
        if self._endings.get(ending.end.transactional_id) is ending:
            del self._endings[ending.end.transactional_id]

    def _run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)


def _marker(ending: _Ending, partitions: Iterable[TopicPartition]) -> Marker:
    end = ending.end
    return Marker(
        producer_id=end.producer.producer_id,
        producer_epoch=end.producer.epoch,
        is_commit=end.is_commit,
        coordinator_epoch=ending.coordinator_epoch,
        transaction_version=end.transaction_version,
        partitions=partitions,
    )


def _message(marker: Marker) -> dict[str, Any]:
    topics = numbers_by_topic(marker.partitions)
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.is_commit,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
        "topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
    }
