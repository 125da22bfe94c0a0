"""SaslAuthenticate: one token of a SASL exchange (KIP-152).

Version 1: the lifetime of the session (KIP-368). A refused client gets its response after
`connection.failed.authentication.delay.ms`, and its connection is closed.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext, WhenDone
from odradek.model import AuthenticationError, ErrorCode
from odradek.security import Principal

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest as Message

_ILLEGAL_STATE: Final = "SaslHandshake comes first, and only on a listener with SASL"


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object] | WhenDone:
    """Return the response token; SASL_AUTHENTICATION_FAILED for a refused client."""
    session = context.session
    authentication = session.authentication
    if authentication is None or not authentication.is_in_exchange:
        return {"error_code": ErrorCode.illegal_sasl_state, "error_message": _ILLEGAL_STATE, "auth_bytes": b""}
    try:
        token, lifetime_ms = authentication.authenticate(bytes(message.auth_bytes))
    except AuthenticationError as error:
        return _refuse_later(broker, context, str(error))
    if authentication.user:
        session.principal = Principal("User", authentication.user)
        session.connection.limit_frames(broker.config.socket_request_max_bytes)
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": token, "session_lifetime": lifetime_ms}


def _refuse_later(broker: BrokerParts, context: RequestContext, reason: str) -> WhenDone:
    connection = context.session.connection
    loop = asyncio.get_running_loop()
    waited: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(broker.config.connection_failed_authentication_delay_ms / 1000, waited.set_result, None)

    def message(done: "asyncio.Future[None]") -> dict[str, object]:
        del done
        timer.cancel()
        loop.call_soon(connection.close, reason)
        failed = ErrorCode.sasl_authentication_failed
        return {"error_code": failed, "error_message": reason, "auth_bytes": b""}

    return WhenDone(waited, message)
