"""UnregisterBroker: forget a broker that is away for good (KIP-631). Any broker does it.

Partition assignments stay as they are, as in Kafka. A live broker is INVALID_REQUEST, which Kafka does not check.
"""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """BROKER_ID_NOT_REGISTERED for a broker that is not known."""
    del context
    try:
        await broker.metadata_loop.unregister_broker(message.broker_id)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_code": ErrorCode.none, "error_message": None}
