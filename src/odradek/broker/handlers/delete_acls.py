"""DeleteAcls: remove the ACLs that filters match, on any broker (KIP-140, KIP-290)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

from odradek.broker.acl_changes import AclChanges
from odradek.broker.cooperation import Steps, cooperatively, in_turns
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
            filters.append(error.with_traceback(None))
    valid = [each for each in filters if isinstance(each, AclFilter)]
    changes = await in_turns(_changes(valid, tuple(broker.image.acls or ())))
    try:
        removed = await broker.metadata_loop.change_acls(changes, context.log_change) if changes else {}
    except KafkaError as error:
        removed, filters = {}, [each if isinstance(each, KafkaError) else error for each in filters]
    return {"filter_results": await in_turns(_results(filters, removed))}


def _changes(filters: list[AclFilter], patterns: Iterable[ResourcePattern]) -> Steps[AclChanges]:
    changes = {}
    for pattern in patterns:
        some = []
        for each in filters:
            if each.matches_pattern(pattern):
                some.append(each)
            yield 1
        if some:
            changes[pattern] = partial(_without, some)
    return changes


def _without(filters: list[AclFilter], entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
    return frozenset(entry for entry in entries if not any(each.matches_entry(entry) for each in filters))


def _results(filters: list[AclFilter | KafkaError], removed: Any) -> Steps[list[dict[str, Any]]]:
    success = {"error_code": ErrorCode.none, "error_message": None}
    results: list[dict[str, Any]] = []
    for wanted in filters:
        yield 1
        if isinstance(wanted, KafkaError):
            results.append({"error_code": wanted.code, "error_message": str(wanted), "matching_acls": []})
            continue
        matching = []
        for pattern, entries in removed.items():
            yield 1
            for entry in sorted(entries) if wanted.matches_pattern(pattern) else ():
                if wanted.matches_entry(entry):
                    matching.append({**success, **pattern_fields(pattern), **entry_fields(entry)})
                yield 1
        results.append({**success, "matching_acls": matching})
    return results
