"""DescribeAcls: the ACLs that a filter matches, on any broker (KIP-140, KIP-290)."""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.acls import decoded_filter, entry_fields, pattern_fields

if TYPE_CHECKING:
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the ACLs by resource pattern; INVALID_REQUEST for a filter of unknown numbers."""
    resources = []
    try:
        context.check_has_acls()
        wanted = decoded_filter(message)
        async for pattern, entries in cooperatively(sorted((broker.image.acls or {}).items())):
            if wanted.matches_pattern(pattern) and (found := list(filter(wanted.matches_entry, entries))):
                resources.append({**pattern_fields(pattern), "acls": list(map(entry_fields, found))})
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "resources": []}
    return {"error_code": ErrorCode.none, "error_message": None, "resources": resources}
