"""LeaveGroup: members leave, or an administrator removes static members by their instance ids.

Versions: 3 many members (KIP-345), 5 the reason (KIP-800). Before version 3 the member's error is the response's error.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.messages import LeaveRequest, LeavingMember
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.leave_group.v5.request import LeaveGroupRequest as Message

_MANY_FROM: Final = 3


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per member: UNKNOWN_MEMBER_ID if the group does not exist."""
    try:
        leavers = tuple([each async for each in cooperatively(_leavers(context, message), light)])
        members = await broker.groups.submit(message.group_id, LeaveRequest(members=leavers))
    except KafkaError as error:
        return {"error_code": error.code, "members": []}
    is_single = context.api_version < _MANY_FROM
    return {
        "error_code": members[0][1] if is_single else ErrorCode.none,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": member_error}
            async for each, member_error in cooperatively(members, light)
        ],
    }


def _leavers(context: RequestContext, message: "Message") -> Iterator[LeavingMember]:
    if context.api_version < _MANY_FROM:
        yield LeavingMember(member_id=optional(message, "member_id", ""))
        return
    for member in message.members:
        yield LeavingMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            reason=optional(member, "reason", None),
        )
