"""Heartbeat: a member is alive, and learns of a rebalance. Versions: 3 static members (KIP-345), 4 flexible."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the member's error code; while groups are loaded, there is none for any member, as in Kafka."""
    del context
    if not message.group_id:
        return {"error_code": ErrorCode.invalid_group_id}
    try:
        shard = broker.groups.shard_of(message.group_id)
    except KafkaError as error:
        loading = error.code is ErrorCode.coordinator_load_in_progress
        return {"error_code": ErrorCode.none if loading else error.code}
    group = shard.groups.get(message.group_id)
    if group is None:
        return {"error_code": ErrorCode.unknown_member_id}
    instance_id = optional(message, "group_instance_id", None)
    return {"error_code": group.heartbeat(message.member_id, instance_id, message.generation_id, shard.now_ms)}
