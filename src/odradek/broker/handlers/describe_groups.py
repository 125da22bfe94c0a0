"""DescribeGroups: state, protocol and members of groups that this broker coordinates.

A group that does not exist has the state Dead, from version 6 also GROUP_ID_NOT_FOUND (KIP-1043). Versions: 3
authorized operations (KIP-430), 4 static members (KIP-345), 6 error message.
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.classic.classic_group import State
from odradek.broker.groups.machine.messages import DescribeRequest, GroupDescription
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import NOT_ASKED_FOR, AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest as Message

_NOT_FOUND_FROM: Final = 6


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one description per group; NOT_COORDINATOR for groups of other brokers."""
    wants_operations = optional(message, "include_authorized_operations", False)
    names = tuple(dict.fromkeys(message.groups))
    replies = await broker.groups.submit_all((name, _request(context, name)) for name in names)
    await broker.dispatcher.begin_long(context)
    return {
        "groups": [
            _described(context, name, reply, wants_operations=wants_operations)
            async for name, reply in cooperatively(zip(names, replies, strict=True))
        ]
    }


def _request(context: RequestContext, group_id: str) -> DescribeRequest | KafkaError:
    try:
        context.check(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    except KafkaError as error:
        return error
    return DescribeRequest()


def _described(
    context: RequestContext, group_id: str, group: GroupDescription | KafkaError, *, wants_operations: bool
) -> dict[str, object]:
    if isinstance(group, KafkaError) and group.code is not ErrorCode.group_id_not_found:
        return _without_group(group_id, group.code, "", str(group))
    operations = context.authorized_operations(ResourceType.GROUP, group_id) if wants_operations else NOT_ASKED_FOR
    if isinstance(group, KafkaError):
        missing = context.api_version >= _NOT_FOUND_FROM
        error_code = ErrorCode.group_id_not_found if missing else ErrorCode.none
        answer = _without_group(group_id, error_code, State.DEAD, str(group))
        return answer | {"authorized_operations": operations}
    return _known(group) | {"authorized_operations": operations}


def _without_group(group_id: str, error: ErrorCode, state: str, message: str) -> dict[str, object]:
    return {
        "error_code": error,
        "error_message": message if error is not ErrorCode.none else None,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_ASKED_FOR,
    }


def _known(group: GroupDescription) -> dict[str, object]:
    return {
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }
