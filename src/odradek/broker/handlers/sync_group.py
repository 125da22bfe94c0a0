"""SyncGroup: a member of a generation gets its assignment; the group's leader sends the assignments of all members.

Versions: 3 static members (KIP-345), 5 protocol type and name, INCONSISTENT_GROUP_PROTOCOL without them (KIP-559).
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.messages import SyncReply, SyncRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.sync_group.v5.request import SyncGroupRequest as Message

_PROTOCOL_FROM: Final = 5


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the member's assignment; UNKNOWN_MEMBER_ID for a group that does not exist."""
    if context.api_version >= _PROTOCOL_FROM and None in (message.protocol_type, message.protocol_name):
        code = ErrorCode.inconsistent_group_protocol if message.group_id else ErrorCode.invalid_group_id
        return _message(SyncReply(error=code))
    request = SyncRequest(
        member_id=message.member_id,
        generation=message.generation_id,
        instance_id=optional(message, "group_instance_id", None),
        protocol_type=optional(message, "protocol_type", None),
        protocol_name=optional(message, "protocol_name", None),
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in message.assignments),
    )
    try:
        return _message(await broker.groups.submit(message.group_id, request))
    except KafkaError as error:
        return _message(SyncReply(error=error.code))


def _message(reply: SyncReply) -> dict[str, object]:
    return {
        "error_code": reply.error,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }
