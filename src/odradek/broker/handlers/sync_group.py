"""SyncGroup: a member of a generation gets its assignment; the leader sends those of all members.

Versions: 3 static members (KIP-345), 4 flexible, 5 protocol type and name, without which the answer is
INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.serving.context import RequestContext
from odradek.groups import SyncReply, SyncRequest
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_PROTOCOL_FROM: Final = 5


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the assignment; UNKNOWN_MEMBER_ID if the group does not exist."""
    future: asyncio.Future[SyncReply] = asyncio.get_running_loop().create_future()
    try:
        if not message.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        if context.api_version >= _PROTOCOL_FROM and None in (message.protocol_type, message.protocol_name):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        shard = broker.groups.shard_of(message.group_id)
        group = shard.groups.get(message.group_id)
        if group is None:
            raise KafkaError(ErrorCode.unknown_member_id)
    except KafkaError as error:
        return _message(SyncReply(to=None, error=error.code))
    request = SyncRequest(
        to=future,
        member_id=message.member_id,
        generation=message.generation_id,
        instance_id=optional(message, "group_instance_id", None),
        protocol_type=optional(message, "protocol_type", None),
        protocol_name=optional(message, "protocol_name", None),
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in message.assignments),
    )
    shard.apply_effects(group, group.sync(request, shard.now_ms))
    return _message(await future)


def _message(reply: SyncReply) -> dict[str, Any]:
    return {
        "error_code": reply.error,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }
