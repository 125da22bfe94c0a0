"""CreateAcls: add ACLs, on any broker (KIP-140, KIP-290). Those that exist already are no error.

When the response is sent, this broker decides by them, and the others within moments.
"""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.acls import decoded_binding
from odradek.security import AclEntry, ResourcePattern

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per ACL, in their order; INVALID_REQUEST for one that cannot be."""
    results: list[KafkaError | None] = [None] * len(message.creations)
    added: dict[ResourcePattern, set[AclEntry]] = {}
    async for place, creation in cooperatively(enumerate(message.creations)):
        try:
            context.check_has_acls()
            binding = decoded_binding(creation, creation)
            binding.check()
            added.setdefault(binding.pattern, set()).add(binding.entry)
        except KafkaError as error:
            results[place] = error.with_traceback(None)
    try:
        if added:
            changes = {pattern: frozenset(entries).union for pattern, entries in added.items()}
            await broker.metadata_loop.change_acls(changes, context.log_change)
    except KafkaError as error:
        results = [each or error for each in results]
    return {
        "results": [
            {
                "error_code": ErrorCode.none if each is None else each.code,
                "error_message": None if each is None else each.message,
            }
            async for each in cooperatively(results, light)
        ]
    }
