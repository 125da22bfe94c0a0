"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are in it.

Clients send versions 0 to 3, one transaction each (KIP-98). Brokers send versions 4 and later, with many transactions,
for the partitions that clients produce to (KIP-890): with `verify_only`, a partition that is not in the transaction
gets TRANSACTION_ABORTABLE; without it, the partition is added for a client of transaction version 2. If one partition
is refused, the transaction gets none, and the others get OPERATION_NOT_ATTEMPTED. Version 2: PRODUCER_FENCED.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.coordinators.machine import Producer
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.messages import AddPartitionsRequest, VerifyPartitionsRequest
from odradek.broker.transactions.transaction_coordinator import response_code
from odradek.broker.turns import Steps, cooperatively, in_turns, light
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.names import INTERNAL_TOPICS
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest as Message
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

_FENCED_FROM: Final = 2
_BROKERS_FROM: Final = 4
_EPOCH_PER_TRANSACTION_FROM: Final = 5
_TOGETHER: Final = 32
"""Transactions of a broker's request that are handled at the same time."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    if context.api_version < _BROKERS_FROM:
        prefix = "v3_and_below_"
        names = ("transactional_id", "producer_id", "producer_epoch", "topics")
        transactional_id, *producer, topics = (getattr(message, prefix + name) for name in names)
        errors = await _of_client(broker, context, transactional_id, _producer(*producer), _partitions(topics))
        return {"results_by_topic_v3_and_below": await in_turns(_by_topic(errors))}
    results = []
    for first in range(0, len(message.transactions), _TOGETHER):
        some = message.transactions[first : first + _TOGETHER]
        errors_of_some = await asyncio.gather(*(_of_broker(broker, context, each) for each in some))
        for each, errors in zip(some, errors_of_some, strict=True):
            topics = await in_turns(_by_topic(errors))
            results.append({"transactional_id": each.transactional_id, "topic_results": topics})
    return {"results_by_transaction": results}


_Errors = dict[TopicPartition, ErrorCode]


async def _of_client(
    broker: BrokerParts,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    partitions: frozenset[TopicPartition],
) -> _Errors:
    if not context.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.transactional_id_authorization_failed)
    topics = {partition.topic for partition in partitions}
    write = AclOperation.WRITE
    denied = await in_turns(context.denied(write, ResourceType.TOPIC, sorted(topics)))
    denied |= topics & INTERNAL_TOPICS
    refused = {each: ErrorCode.topic_authorization_failed for each in partitions if each.topic in denied}
    return await _add(broker, context, transactional_id, producer, partitions, refused)


async def _of_broker(broker: BrokerParts, context: RequestContext, each: "AddPartitionsToTxnTransaction") -> _Errors:
    producer, partitions = _producer(each.producer_id, each.producer_epoch), _partitions(each.topics)
    if not each.verify_only:
        return await _add(broker, context, each.transactional_id, producer, partitions, {})
    request = VerifyPartitionsRequest(producer=producer, partitions=partitions)
    try:
        known: frozenset[TopicPartition] = await broker.transactions.submit(each.transactional_id, request)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)
    return {each: ErrorCode.none if each in known else ErrorCode.transaction_abortable for each in partitions}


async def _add(
    broker: BrokerParts,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    refused: _Errors,
) -> _Errors:
    missing = [
        each
        async for each in cooperatively(sorted(partitions - refused.keys()), light)
        if broker.image.partition(each) is None
    ]
    refused = refused | dict.fromkeys(missing, ErrorCode.unknown_topic_or_partition)
    if refused:
        return {each: refused.get(each, ErrorCode.operation_not_attempted) for each in partitions}
    version = 2 if context.api_version >= _EPOCH_PER_TRANSACTION_FROM else 0
    request = AddPartitionsRequest(producer=producer, partitions=partitions, transaction_version=version)
    code = ErrorCode.none
    try:
        await broker.transactions.submit(transactional_id, request)
    except KafkaError as error:
        code = response_code(error, knows_fencing=context.api_version >= _FENCED_FROM)
    return dict.fromkeys(partitions, code)


def _producer(producer_id: int, epoch: int) -> Producer:
    return Producer(producer_id=producer_id, epoch=epoch)


def _partitions(topics: "Iterable[AddPartitionsToTxnTopic]") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _by_topic(errors: _Errors) -> Steps[list[dict[str, object]]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, number), error in sorted(errors.items()):
        topics.setdefault(topic, []).append({"partition_index": number, "partition_error_code": error})
        yield 1
    return [{"name": topic, "results_by_partition": results} for topic, results in topics.items()]
