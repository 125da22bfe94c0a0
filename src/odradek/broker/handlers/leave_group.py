"""LeaveGroup: members leave, or an administrator removes static members by their instance ids.

Versions: 3 many members (KIP-345), 4 flexible, 5 the reason (KIP-800). Before 3 the member's error is the response's.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.serving.context import RequestContext
from odradek.groups import LeaveReply, LeaveRequest, LeavingMember
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_MANY_FROM: Final = 3


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return each member's error; UNKNOWN_MEMBER_ID if the group does not exist."""
    future: asyncio.Future[LeaveReply] = asyncio.get_running_loop().create_future()
    leavers = _leavers(context, message)
    try:
        if not message.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        shard = broker.groups.shard_of(message.group_id)
    except KafkaError as error:
        return _message(context, LeaveReply(to=None, error=error.code))
    group = shard.groups.get(message.group_id)
    if group is None:
        unknown = tuple((leaver, ErrorCode.unknown_member_id) for leaver in leavers)
        return _message(context, LeaveReply(to=None, members=unknown))
    shard.apply_effects(group, group.leave(LeaveRequest(to=future, members=leavers), shard.now_ms))
    return _message(context, await future)


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


def _message(context: RequestContext, reply: LeaveReply) -> dict[str, Any]:
    error = reply.error
    if context.api_version < _MANY_FROM and error is ErrorCode.none:
        error = reply.members[0][1]
    return {
        "error_code": error,
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": member_error}
            for leaver, member_error in reply.members
        ],
    }
