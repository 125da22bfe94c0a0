"""ControlledShutdown: a broker is about to stop and wants to lead nothing any more. Only the controller does it.

It has to name its registration, which no client is told. Version 3 is the only one.
"""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """STALE_BROKER_EPOCH for another registration, BROKER_NOT_AVAILABLE for none, or NOT_CONTROLLER."""
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
