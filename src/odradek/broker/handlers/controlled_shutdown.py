"""ControlledShutdown: move leaderships away from a broker that is about to stop. Only the controller serves it.

The request has the broker's epoch, which clients do not know. Only version 3 is served.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.protocol.messages.controller_messages import ControlledShutdownRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the replicated partitions that the broker still leads; BROKER_NOT_AVAILABLE if it is not registered."""
    del context
    try:
        if message.broker_epoch < 0:
            raise KafkaError(ErrorCode.stale_broker_epoch)
        remaining = await broker.controller.shut_down(message.broker_id, message.broker_epoch)
    except KafkaError as error:
        return {"error_code": error.code, "remaining_partitions": []}
    return {
        "remaining_partitions": [{"topic_name": each.topic, "partition_index": each.partition} for each in remaining]
    }
