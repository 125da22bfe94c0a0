"""DeleteGroups: groups that nobody is in are deleted with their offsets (KIP-229); their coordinator does it.

When the answer leaves, that is committed. Version 2 is flexible.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext
from odradek.broker.turns import in_turns
from odradek.model import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or NOT_COORDINATOR for those of other brokers."""
    del context
    errors: dict[str, ErrorCode] = {}
    deletions: dict[str, asyncio.Future[ErrorCode]] = {}
    async for group_id in in_turns(dict.fromkeys(message.groups_names)):
        errors[group_id] = ErrorCode.none
        try:
            deletions[group_id] = broker.groups.shard_of(group_id).delete(group_id)
        except KafkaError as error:
            errors[group_id] = error.code
    for group_id, deletion in deletions.items():
        errors[group_id] = await deletion
    return {"results": [{"group_id": group_id, "error_code": error} for group_id, error in errors.items()]}
