"""AddOffsetsToTxn: add a group's partition of `__consumer_offsets` to a transaction, before TxnOffsetCommit (KIP-98).

Clients of transaction version 2 do not send it. Versions: 2 PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.coordinators.machine import Producer
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.messages import AddPartitionsRequest
from odradek.broker.transactions.transaction_coordinator import response_code
from odradek.model import KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest as Message

_FENCED_FROM: Final = 2


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    try:
        context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        context.check(AclOperation.READ, ResourceType.GROUP, message.group_id)
        request = AddPartitionsRequest(
            producer=Producer(producer_id=message.producer_id, epoch=message.producer_epoch),
            partitions=frozenset({await broker.groups.partition(message.group_id)}),
        )
        await broker.transactions.submit(message.transactional_id, request)
    except KafkaError as error:
        return {"error_code": response_code(error, knows_fencing=context.api_version >= _FENCED_FROM)}
    return {}
