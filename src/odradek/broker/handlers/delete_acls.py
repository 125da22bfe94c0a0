"""DeleteAcls: remove the ACLs that filters match, on any broker (KIP-140, KIP-290)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from odradek.broker.cooperation import cooperatively
from odradek.broker.parts import HasImage, HasMetadataLoop
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.acls import decoded_filter, entry_fields, pattern_fields
from odradek.security import AclEntry, AclFilter, ResourcePattern


class _Broker(HasImage, HasMetadataLoop, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the removed ACLs that each filter matches, or its error, in the filters' order."""
    filters: list[AclFilter | KafkaError] = []
    async for each in cooperatively(message.filters):
        try:
            context.check_has_acls()
            filters.append(decoded_filter(each))
        except KafkaError as error:
            filters.append(error)
    valid = [each for each in filters if isinstance(each, AclFilter)]
    changes: dict[ResourcePattern, Callable[[frozenset[AclEntry]], frozenset[AclEntry]]] = {}
    async for pattern in cooperatively(broker.image.acls or {}):
        if some := [each for each in valid if each.matches_pattern(pattern)]:
            changes[pattern] = partial(_without, some)
    try:
        removed = await broker.metadata_loop.change_acls(changes, context.log_change) if changes else {}
    except KafkaError as error:
        removed, filters = {}, [each if isinstance(each, KafkaError) else error for each in filters]
    return {"filter_results": [_result(each, removed) async for each in cooperatively(filters)]}


def _without(filters: list[AclFilter], entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
    return frozenset(entry for entry in entries if not any(each.matches_entry(entry) for each in filters))


def _result(wanted: AclFilter | KafkaError, removed: Any) -> dict[str, Any]:
    if isinstance(wanted, KafkaError):
        return {"error_code": wanted.code, "error_message": str(wanted), "matching_acls": []}
    success = {"error_code": ErrorCode.none, "error_message": None}
    matching = [
        {**success, **pattern_fields(pattern), **entry_fields(entry)}
        for pattern, entries in removed.items()
        if wanted.matches_pattern(pattern)
        for entry in sorted(entries)
        if wanted.matches_entry(entry)
    ]
    return {**success, "matching_acls": matching}
