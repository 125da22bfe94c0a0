"""LeaveGroup: members leave, or an administrator removes static members by their instance ids.

Versions: 3 many members (KIP-345), 5 the reason (KIP-800). Before version 3 the member's error is the response's error.
"""

from typing import Any, Final

from odradek.broker.parts import HasGroups
from odradek.broker.serving.context import RequestContext
from odradek.groups.messages import LeaveRequest, LeavingMember
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional

_MANY_FROM: Final = 3


async def handle(broker: HasGroups, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one error per member: UNKNOWN_MEMBER_ID if the group does not exist."""
    try:
        members = await broker.groups.submit(message.group_id, LeaveRequest(members=_leavers(context, message)))
    except KafkaError as error:
        return {"error_code": error.code, "members": []}
    is_single = context.api_version < _MANY_FROM
    return {
        "error_code": members[0][1] if is_single else ErrorCode.none,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": member_error}
            for each, member_error in members
        ],
    }


def _leavers(context: RequestContext, message: Any) -> tuple[LeavingMember, ...]:
    if context.api_version < _MANY_FROM:
        return (LeavingMember(member_id=message.member_id),)
    return tuple(
        LeavingMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            reason=optional(member, "reason", None),
        )
        for member in message.members
    )
