"""DeleteGroups: delete empty groups and their offsets (KIP-229). The groups' coordinator serves it.

When the response is sent, the deletion is committed. Version 3 has a text for errors that the code does not explain.
If the coordinator fails meanwhile, a large group may have lost some of its offsets: the request gets an error, and can
be repeated.
"""

from typing import TYPE_CHECKING

from odradek.broker.groups.machine.messages import DeleteGroupRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import HEAVY, in_turns
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one error per group, for instance NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR."""
    denied = await in_turns(context.denied(AclOperation.DELETE, ResourceType.GROUP, message.groups_names))
    names = tuple(dict.fromkeys(message.groups_names))
    refused = KafkaError(ErrorCode.group_authorization_failed)
    requests = ((name, refused if name in denied else DeleteGroupRequest()) for name in names)

    def weigh(name: str) -> int:
        machine = broker.groups.machine(name)
        return HEAVY if machine is None else HEAVY + 4 * len(machine.offsets.of(name))

    replies = await broker.groups.submit_all(requests, weigh)
    return {
        "results": [
            {"group_id": name, "error_code": reply.code, "error_message": reply.message}
            if isinstance(reply, KafkaError)
            else {"group_id": name, "error_code": reply}
            for name, reply in zip(names, replies, strict=True)
        ]
    }
