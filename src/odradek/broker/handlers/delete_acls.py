"""DeleteAcls: remove the ACLs that filters match, on any broker (KIP-140, KIP-290).

As with Kafka's AclAuthorizer, a removed ACL is in the result of the first filter that matches it. Neither the time nor
the response grows with entries times filters: an entry is looked up by the 16 keys that filters for it may have.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps, cooperatively, in_turns
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.acls import decoded_filter, entry_fields, pattern_fields
from odradek.security import AclEntry, AclFilter, AclOperation, AclPermissionType, ResourcePattern

if TYPE_CHECKING:
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest as Message

_MOST_MATCHES: Final = 262_144
"""Limit of the patterns that a request's filters match, equal filters counted once: about 50 MB."""
_Places: TypeAlias = dict[tuple[str | None, str | None, AclOperation, AclPermissionType], int]
"""The index of the first filter that matches a pattern, by its principal, host, operation and permission."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the removed ACLs that each filter matches, or its error, in the filters' order."""
    filters: list[AclFilter | KafkaError] = []
    async for each in cooperatively(message.filters):
        try:
            context.check_has_acls()
            filters.append(decoded_filter(each))
        except KafkaError as error:
            filters.append(error.with_traceback(None))
    try:
        places = await in_turns(_places(filters, tuple(broker.image.acls or ())))
        changes = {pattern: partial(_without, each) for pattern, each in places.items()}
        removed = await broker.metadata_loop.change_acls(changes, context.log_change) if changes else {}
    except KafkaError as error:
        places, removed = {}, {}
        filters = [each if isinstance(each, KafkaError) else error for each in filters]
    return {"filter_results": await in_turns(_results(filters, places, removed))}


def _places(
    filters: Sequence[AclFilter | KafkaError], patterns: Iterable[ResourcePattern]
) -> Steps[dict[ResourcePattern, _Places]]:
    found: dict[ResourcePattern, _Places] = {}
    matches = 0
    for pattern in patterns:
        places: _Places = {}
        for place, each in enumerate(filters):
            if isinstance(each, AclFilter) and each.matches_pattern(pattern):
                places.setdefault((each.principal, each.host, each.operation, each.permission_type), place)
            yield 1
        if places:
            found[pattern] = places
            matches += len(places)
        if matches > _MOST_MATCHES:
            text = f"the filters match more than {_MOST_MATCHES:,} patterns together: send fewer filters"
            raise KafkaError(ErrorCode.invalid_request, text)
    return found


def _first(places: _Places, entry: AclEntry) -> int | None:
    permissions, operations = (entry.permission_type, AclPermissionType.ANY), (entry.operation, AclOperation.ANY)
    keys = product((entry.principal, None), (entry.host, None), operations, permissions)
    return min((places[key] for key in keys if key in places), default=None)


def _without(places: _Places, entries: frozenset[AclEntry]) -> frozenset[AclEntry]:
    return frozenset(entry for entry in entries if _first(places, entry) is None)


def _results(
    filters: Sequence[AclFilter | KafkaError],
    places: Mapping[ResourcePattern, _Places],
    removed: Mapping[ResourcePattern, frozenset[AclEntry]],
) -> Steps[list[dict[str, object]]]:
    success = {"error_code": ErrorCode.none, "error_message": None}
    results: list[dict[str, object]] = []
    matching: list[list[dict[str, object]]] = [[] for _ in filters]
    for each, acls in zip(filters, matching, strict=True):
        error = {"error_code": each.code, "error_message": each.message} if isinstance(each, KafkaError) else success
        results.append({**error, "matching_acls": acls})
        yield 1
    for pattern, entries in removed.items():
        for entry in sorted(entries):
            place = _first(places[pattern], entry)
            assert place is not None, entry
            matching[place].append({**success, **pattern_fields(pattern), **entry_fields(entry)})
            yield 4
    return results
