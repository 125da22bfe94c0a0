"""InitProducerId: a producer id and epoch for an idempotent (KIP-98) or transactional producer.

A null transactional id always gets a new producer id, with epoch 0. A transactional id keeps its producer id and gets
the next epoch, which fences its former producer; a transaction of that producer is aborted, and the client has to try
again (CONCURRENT_TRANSACTIONS). Versions: 3 the producer's old id and epoch (KIP-360), 4 PRODUCER_FENCED, 5
TRANSACTION_ABORTABLE (KIP-890), 6 two-phase commit (KIP-939), which may keep the transaction.
"""

import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.coordinators.machine import Producer
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.messages import InitProducerIdReply, InitProducerIdRequest
from odradek.broker.transactions.transaction_coordinator import response_code
from odradek.model import ErrorCode, KafkaError, OdradekError
from odradek.protocol.messages.message_codec import milliseconds, optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.init_producer_id.v6.request import InitProducerIdRequest as Message

_FENCED_FROM: Final = 4
_log = logging.getLogger("odradek.broker")


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return a producer id; COORDINATOR_NOT_AVAILABLE, which clients retry, if none can be allocated."""
    if message.transactional_id is not None:
        return await _of_transactional_id(broker, context, message, message.transactional_id)
    if not context.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, quietly=True) and not context.allows_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        return _failure(ErrorCode.cluster_authorization_failed)
    try:
        producer_id = await broker.producer_ids.take()
    except OdradekError as error:
        _log.warning("Failed to allocate a producer id: %s", error)
        return _failure(ErrorCode.coordinator_not_available)
    return {"producer_id": producer_id, "producer_epoch": 0}


async def _of_transactional_id(
    broker: BrokerParts, context: RequestContext, message: "Message", transactional_id: str
) -> dict[str, object]:
    two_phase = optional(message, "enable2_pc", False)
    try:
        context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if two_phase:
            context.check(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
        request = InitProducerIdRequest(
            timeout_ms=milliseconds(message.transaction_timeout),
            producer=_expected(message),
            enable_two_phase_commit=two_phase,
            keep_prepared=optional(message, "keep_prepared_txn", False),
        )
        reply: InitProducerIdReply = await broker.transactions.submit(transactional_id, request)
    except KafkaError as error:
        return _failure(response_code(error, knows_fencing=context.api_version >= _FENCED_FROM))
    return {
        "producer_id": reply.producer.producer_id,
        "producer_epoch": reply.producer.epoch,
        "ongoing_txn_producer_id": reply.ongoing.producer_id,
        "ongoing_txn_producer_epoch": reply.ongoing.epoch,
    }


def _expected(message: "Message") -> Producer | None:
    """Return the client's producer id and epoch. Raises `KafkaError` INVALID_REQUEST if it names only one of them."""
    producer_id, epoch = optional(message, "producer_id", -1), optional(message, "producer_epoch", -1)
    if (producer_id < 0) != (epoch < 0):
        raise KafkaError(ErrorCode.invalid_request, "a producer that recovers names its producer id and its epoch")
    return None if producer_id < 0 else Producer(producer_id=producer_id, epoch=epoch)


def _failure(error: ErrorCode) -> dict[str, object]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
