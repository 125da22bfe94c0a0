"""Heartbeat: a member is alive, and learns of a rebalance. Versions: 3 static members (KIP-345), 4 flexible."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.groups.messages import HeartbeatRequest
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Restart the member's session. While groups load, every member gets no error, as in Kafka."""
    del context
    request = HeartbeatRequest(
        member_id=message.member_id,
        instance_id=optional(message, "group_instance_id", None),
        generation=message.generation_id,
    )
    try:
        return {"error_code": await broker.groups.submit(message.group_id, request)}
    except KafkaError as error:
        loading = error.code is ErrorCode.coordinator_load_in_progress
        return {"error_code": ErrorCode.none if loading else error.code}
