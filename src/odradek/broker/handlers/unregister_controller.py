"""UnregisterController: refused, as the controller is one of the brokers and has no registration of its own."""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode

if TYPE_CHECKING:
    from odradek.protocol.messages.newer.unregister_controller import UnregisterControllerRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return CONTROLLER_ID_NOT_REGISTERED, in Kafka's words."""
    del broker, context
    text = f"Controller ID {message.controller_id} is not currently registered."
    return {"error_code": ErrorCode["controller_id_not_registered"], "error_message": text}
