"""UnregisterBroker: remove a broker that is down for good (KIP-631). Any broker serves it.

Partition assignments do not change, as in Kafka. Unlike in Kafka, a live broker is refused with INVALID_REQUEST.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the error code: BROKER_ID_NOT_REGISTERED for an unknown broker."""
    del context
    try:
        await broker.metadata_loop.unregister_broker(message.broker_id)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message}
    return {"error_code": ErrorCode.none, "error_message": None}
