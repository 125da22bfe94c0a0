"""SaslHandshake: the client names the SASL mechanism by which it authenticates (KIP-43).

Version 1: tokens are in SaslAuthenticate requests (KIP-152). Version 0, whose tokens have no header, is not served.
"""

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Begin an exchange. UNSUPPORTED_SASL_MECHANISM names those that are enabled, and ends the connection.

    ILLEGAL_SASL_STATE without SASL.
    """
    del broker
    authentication = context.session.authentication
    if authentication is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    error = ErrorCode.none
    try:
        authentication.handshake(message.mechanism)
    except KafkaError as refused:
        error = refused.code
        reason = f"the client requests the SASL mechanism {message.mechanism[:20]!r}, which is not enabled"
        asyncio.get_running_loop().call_soon(context.session.connection.close, reason)
    return {"error_code": error, "mechanisms": authentication.mechanisms}
