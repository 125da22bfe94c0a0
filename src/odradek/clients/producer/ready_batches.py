"""Decides which batches are sent, and when the next ones are due: no clock and no I/O."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from odradek.clients.metadata import ClusterMetadata
from odradek.clients.producer.producer_batch import ProducerBatch
from odradek.clients.producer.record_accumulator import TIMER_SLACK_S, PartitionQueue, RecordAccumulator
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.producer.transaction_manager import TransactionManager
from odradek.clients.producer.transactions.machine import TransactionMachine


class Link(Protocol):
    """A connection: its state decides whether it takes another request."""

    @property
    def writable(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...


class Ready(Struct, frozen=True, kw_only=True):
    """The queues with a batch that is due, by leader; `next_at` is the monotonic second when another one is due."""

    by_leader: dict[int, list[PartitionQueue]]
    has_leaderless: bool
    next_at: float


class ReadyBatches:
    """The batches of one producer that its sender may send now."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        transaction_manager: TransactionManager | None,
        machine: TransactionMachine | None,
    ) -> None:
        self._accumulator = accumulator
        self._most_in_flight = settings.max_in_flight_requests_per_connection
        self._max_request_size = settings.max_request_size
        self._transaction_manager = transaction_manager
        self._machine = machine

    def ready(self, now: float, metadata: ClusterMetadata, *, immediate: bool) -> Ready:
        """Return the queues with a batch that is due; `immediate` skips `linger.ms`."""
        next_at = inf
        has_leaderless = False
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.queues.values():
            if not (self._has_usable_sequences(queue) and self._is_in_transaction(queue)):
                continue
            due_at = self._accumulator.due_at(queue, immediate=immediate)
            if due_at > now + TIMER_SLACK_S:
                next_at = min(next_at, due_at)
                continue
            leader = metadata.leader(queue.partition)
            if leader is None:
                has_leaderless = True
            else:
                by_leader.setdefault(leader, []).append(queue)
        return Ready(by_leader=by_leader, has_leaderless=has_leaderless, next_at=next_at)

    def requests(
        self, link: Link, queues: Sequence[PartitionQueue], now: float, *, immediate: bool
    ) -> Iterator[list[ProducerBatch]]:
        """Yield the batches of each request, one batch per partition, while the connection has capacity.

        The caller sends a request before it asks for the next one.
        """
        queues = [queue for queue in queues if queue.can_send_on(link)]
        while self.has_capacity(link):
            batches: list[ProducerBatch] = []
            size = 0
            for queue in queues:
                if self._accumulator.due_at(queue, immediate=immediate) > now + TIMER_SLACK_S:
                    continue
                if queue.in_flight and self._waits_for_answer(queue):
                    continue
                size += queue.next.estimated_bytes
                if batches and size > self._max_request_size:
                    break
                batches.append(self._drain(queue, link))
            if not batches:
                return
            # Move these partitions to the end, so that the next request begins with others.
            for batch in batches:
                self._accumulator.queues[batch.partition] = self._accumulator.queues.pop(batch.partition)
            yield batches

    def next_at(self, link: Link, queues: Iterable[PartitionQueue], now: float, *, immediate: bool) -> float:
        """Return the monotonic second when a queue is due again after its requests.

        A queue that is due now waits for capacity; a response wakes the sender for it.
        """
        later = (self._accumulator.due_at(each, immediate=immediate) for each in queues if each.can_send_on(link))
        return min((due_at for due_at in later if due_at > now + TIMER_SLACK_S), default=inf)

    def has_capacity(self, link: Link) -> bool:
        return link.writable and link.in_flight < self._most_in_flight

    def _has_usable_sequences(self, queue: PartitionQueue) -> bool:
        """Return whether batches can be sent; after a sequence gap, restart the sequences when none has one any more.

        A batch that is sent again keeps its sequence until the broker has refused it: it may have been appended.
        """
        transaction_manager = self._transaction_manager
        if transaction_manager is None or not transaction_manager.needs_new_sequences(queue.partition):
            return True
        if queue.in_flight:
            return False
        if all(batch.base_sequence < 0 for batch in queue.retrying):
            transaction_manager.start_sequences_at_beginning(queue.partition)
        return True

    def _is_in_transaction(self, queue: PartitionQueue) -> bool:
        """Return whether batches of the partition can be sent, which AddPartitionsToTxn may have to precede."""
        if self._machine is None or not (queue.waiting or queue.retrying):
            return True
        return self._machine.may_send(queue.partition)

    def _waits_for_answer(self, queue: PartitionQueue) -> bool:
        """Return whether the batch in flight must be answered before the next one: see `waits_for_first_ack`."""
        manager, partition = self._transaction_manager, queue.partition
        return manager is not None and (
            manager.waits_for_first_ack(partition) or manager.needs_new_sequences(partition)
        )

    def _drain(self, queue: PartitionQueue, link: Link) -> ProducerBatch:
        is_idle = queue.is_idle
        batch = self._accumulator.drain(queue, link)
        if self._transaction_manager is not None and batch.base_sequence < 0:
            identity, base = self._transaction_manager.assign_sequence(queue.partition, batch.count, is_idle=is_idle)
            batch.is_transactional = self._machine is not None
            batch.reset_producer_state(identity.producer_id, identity.epoch, base)
        batch.attempts += 1
        return batch
