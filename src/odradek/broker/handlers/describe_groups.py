"""DescribeGroups: state, protocol and members of groups that this broker coordinates.

A group that is not there is Dead; from version 6 it is GROUP_ID_NOT_FOUND as well (KIP-1043). Versions: 3 authorized
operations (KIP-430), 4 static members (KIP-345), 5 flexible, 6 error message.
"""

from typing import TYPE_CHECKING, Any, Final

from odradek.broker.serving.context import RequestContext
from odradek.broker.turns import in_turns
from odradek.groups import ClassicGroup, State
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages import optional
from odradek.security import GROUP_OPERATIONS, NOT_ASKED_FOR

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_NOT_FOUND_FROM: Final = 6


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """One answer per group, however often it is asked for; NOT_COORDINATOR for those of other brokers."""
    wants_operations = optional(message, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if wants_operations else NOT_ASKED_FOR
    return {
        "groups": [
            _describe(broker, context, group_id) | {"authorized_operations": operations}
            async for group_id in in_turns(dict.fromkeys(message.groups))
        ]
    }


def _describe(broker: "Broker", context: RequestContext, group_id: str) -> dict[str, Any]:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        group = broker.groups.shard_of(group_id).groups.get(group_id)
    except KafkaError as error:
        return _without_group(group_id, error.code, "", str(error))
    if group is None:
        missing = context.api_version >= _NOT_FOUND_FROM
        error_code = ErrorCode.group_id_not_found if missing else ErrorCode.none
        return _without_group(group_id, error_code, State.DEAD.shown, f"group {group_id} is not there")
    return _known(group)


def _without_group(group_id: str, error: ErrorCode, state: str, message: str) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message if error is not ErrorCode.none else None,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _known(group: ClassicGroup) -> dict[str, Any]:
    """Only a stable group has a protocol that everybody's metadata can be read by."""
    protocol_name = group.protocol_name if group.state is State.STABLE else None
    return {
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.shown,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol_name or "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": b"" if protocol_name is None else member.metadata(protocol_name),
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }
