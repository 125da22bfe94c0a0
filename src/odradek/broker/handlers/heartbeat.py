"""Heartbeat: restart a member's session timeout; the error REBALANCE_IN_PROGRESS makes the member join again.

Version 3: static members (KIP-345).
"""

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.groups.machine.messages import HeartbeatRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext, WhenDone
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest as Message


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> WhenDone:
    """Restart the member's session timeout. While the group is loading, the response has no error, as in Kafka."""
    del context
    request = HeartbeatRequest(
        member_id=message.member_id,
        instance_id=optional(message, "group_instance_id", None),
        generation=message.generation_id,
    )
    return WhenDone(broker.groups.submit(message.group_id, request), _message)


def _message(reply: "asyncio.Future[ErrorCode]") -> dict[str, object]:
    try:
        return {"error_code": reply.result()}
    except KafkaError as error:
        is_loading = error.code is ErrorCode.coordinator_load_in_progress
        return {"error_code": ErrorCode.none if is_loading else error.code}
