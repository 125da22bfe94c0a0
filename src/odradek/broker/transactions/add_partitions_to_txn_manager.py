"""Kafka's `AddPartitionsToTxnManager`: adds partitions to transactions, or verifies that they belong to them.

```
add_or_verify ─▶ this broker coordinates the transaction: its state machine, without a connection
              ─▶ another broker does: one AddPartitionsToTxn in flight per broker, with all that has gathered meanwhile
```
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.coordinators.machine import Producer
from odradek.broker.coordinators.runtime import partition_of
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.retrying_sender import RetryingSender
from odradek.broker.transactions.machine.messages import AddPartitionsRequest, Request, VerifyPartitionsRequest
from odradek.broker.transactions.machine.transaction import EPOCH_PER_TRANSACTION
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.model.names import TRANSACTIONS_TOPIC, numbers_by_topic
from odradek.protocol.api import ApiKey

Errors = Mapping[TopicPartition, ErrorCode]
_PURPOSE: Final = "partitions of transactions"
_MOST_PARTITIONS: Final = 1000
"""A request that has this many partitions gets no more, as brokers limit the entries of a request."""


class _Transaction(Struct, eq=False, kw_only=True):
    """The partitions of one transaction, and the future of their errors."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    adds: bool
    answer: "asyncio.Future[Errors]"

    def fail(self, error: ErrorCode) -> None:
        if not self.answer.done():
            self.answer.set_result(dict.fromkeys(self.partitions, error))

    def message(self) -> dict[str, Any]:
        topics = numbers_by_topic(self.partitions)
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
            "verify_only": not self.adds,
            "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
        }


class AddPartitionsToTxnManager:
    """The requests of one broker. `submit` passes a request to this broker's transaction coordinator."""

    def __init__(
        self,
        metadata: MetadataCache,
        connections: BrokerConnections,
        submit: Callable[[str, Request], Awaitable[Any]],
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._submit = submit
        self._has_stopped = False
        self._senders: dict[int, RetryingSender[deque[_Transaction]]] = {}
        """The senders to coordinators, by broker id."""

    async def add_or_verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], *, adds: bool
    ) -> Errors:
        """Return an error, or `none`, per partition: whether it is in the transaction, or was added to it."""
        image = self._metadata.image
        partition = image.partition(partition_of(image, TRANSACTIONS_TOPIC, transactional_id))
        if partition is None or partition.leader not in image.brokers:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        if partition.leader == self._metadata.broker_id:
            return await self._submit_here(transactional_id, producer, frozenset(partitions), adds=adds)
        if self._has_stopped:
            return dict.fromkeys(partitions, ErrorCode.network_exception)
        transaction = _Transaction(
            transactional_id=transactional_id,
            producer=producer,
            partitions=partitions,
            adds=adds,
            answer=asyncio.get_running_loop().create_future(),
        )
        sender = self._senders.get(partition.leader)
        if sender is None:
            name, send = f"AddPartitionsToTxn to broker {partition.leader}", partial(self._send, partition.leader)
            sender = self._senders[partition.leader] = RetryingSender[deque[_Transaction]](name, deque(), send)
        sender.waiting.append(transaction)
        sender.wake()
        return await transaction.answer

    def stop(self) -> None:
        """Fail the transactions that wait, and all later ones, for other brokers."""
        self._has_stopped = True
        for sender in self._senders.values():
            sender.close()
            for each in sender.waiting:
                each.fail(ErrorCode.network_exception)
        self._senders.clear()

    async def _submit_here(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], *, adds: bool
    ) -> Errors:
        try:
            if adds:
                request = AddPartitionsRequest(
                    producer=producer, partitions=partitions, transaction_version=EPOCH_PER_TRANSACTION
                )
                await self._submit(transactional_id, request)
                known = partitions
            else:
                known = await self._submit(
                    transactional_id, VerifyPartitionsRequest(producer=producer, partitions=partitions)
                )
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {each: ErrorCode.none if each in known else ErrorCode.transaction_abortable for each in partitions}

    async def _send(self, broker_id: int, waiting: deque[_Transaction]) -> bool:
        """Send a request with transactions that wait for a broker; one that cannot be sent fails."""
        sent: dict[str, _Transaction] = {}
        count = 0
        for _ in range(len(waiting)):
            each = waiting.popleft()
            if each.transactional_id in sent or count >= _MOST_PARTITIONS:  # a request names each id once
                waiting.append(each)
            else:
                sent[each.transactional_id] = each
                count += len(each.partitions)
        try:
            await self._exchange(broker_id, sent)
        finally:
            for each in sent.values():
                each.fail(ErrorCode.network_exception)
        return True

    async def _exchange(self, broker_id: int, sent: Mapping[str, _Transaction]) -> None:
        message = {"transactions": [each.message() for each in sent.values()]}
        try:
            response = await self._connections.request(
                self._metadata.image.brokers, broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, message, purpose=_PURPOSE
            )
        except (KafkaError, UnavailableError):
            return
        for result in response.results_by_transaction:
            transaction = sent.get(result.transactional_id)
            if transaction is not None and not transaction.answer.done():
                transaction.answer.set_result(
                    {
                        TopicPartition(topic.name, each.partition_index): each.partition_error_code
                        for topic in result.topic_results
                        for each in topic.results_by_partition
                    }
                )
        is_denied = response.error_code is ErrorCode.cluster_authorization_failed
        for each in sent.values():  # those without a result
            each.fail(ErrorCode.invalid_txn_state if is_denied else response.error_code or ErrorCode.network_exception)
