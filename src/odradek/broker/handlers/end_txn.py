"""EndTxn: commit or abort a transaction (KIP-98).

The response is sent when the decision is committed to `__transaction_state`; the markers follow. Versions: 2
PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE, 5 transaction version 2 (KIP-890): the epoch is bumped, and the response has
the producer id and epoch of the next transaction.
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.coordinators.machine import Producer
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.messages import EndTransactionRequest
from odradek.broker.transactions.transaction_coordinator import response_code
from odradek.model import KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.request import EndTxnRequest as Message

_FENCED_FROM: Final = 2
_EPOCH_PER_TRANSACTION_FROM: Final = 5


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return an error code, or the next producer id and epoch."""
    try:
        context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        request = EndTransactionRequest(
            producer=Producer(producer_id=message.producer_id, epoch=message.producer_epoch),
            is_commit=message.committed,
            transaction_version=2 if context.api_version >= _EPOCH_PER_TRANSACTION_FROM else 0,
        )
        client: Producer = await broker.transactions.submit(message.transactional_id, request)
    except KafkaError as error:
        return {"error_code": response_code(error, knows_fencing=context.api_version >= _FENCED_FROM)}
    return {"producer_id": client.producer_id, "producer_epoch": client.epoch}
