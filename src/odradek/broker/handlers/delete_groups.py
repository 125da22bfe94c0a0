"""DeleteGroups: delete empty groups and their offsets (KIP-229). The groups' coordinator serves it.

When the response is sent, the deletion is committed. Version 2 is flexible.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.broker.cooperation import cooperatively
from odradek.broker.serving.context import RequestContext
from odradek.groups.messages import DeleteGroupRequest
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one result per group, for instance NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR."""
    errors: dict[str, ErrorCode] = {}
    deletions: dict[str, asyncio.Future[Any]] = {}
    denied = context.denied(AclOperation.DELETE, ResourceType.GROUP, message.groups_names)
    async for group_id in cooperatively(dict.fromkeys(message.groups_names)):
        errors[group_id] = ErrorCode.group_authorization_failed if group_id in denied else ErrorCode.none
        if group_id in denied:
            continue
        deletions[group_id] = broker.groups.submit(group_id, DeleteGroupRequest())
    for group_id, deletion in deletions.items():
        try:
            errors[group_id] = await deletion
        except KafkaError as error:
            errors[group_id] = error.code
    return {"results": [{"group_id": group_id, "error_code": error} for group_id, error in errors.items()]}
