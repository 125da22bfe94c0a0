"""DescribeClientQuotas: list the quotas of the entities that match a filter (KIP-546), of IP addresses too (KIP-612).

A component of the filter matches the entity's name (0), the default entity (1), or any name (2). A strict filter leaves
out entities with parts of other types.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError
from odradek.security.quotas import DEFAULT, only_quotas

if TYPE_CHECKING:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest as Message

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_TYPES: Final = ("user", "client-id", "ip")
_COMBINED: Final = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return the entities and their quotas, or INVALID_REQUEST for an invalid filter."""
    del context
    try:
        wanted = _filter(message.components)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    entries = []
    async for entity, config in cooperatively(broker.image.quota_configs.items()):
        parts = entity.parts
        if _matches(parts, wanted) and not (message.strict and len(parts) != len(wanted)):
            values = [{"key": key, "value": value} for key, value in only_quotas(entity, config).items()]
            entries.append({"entity": _entity_message(parts), "values": values})
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


def _entity_message(parts: Mapping[str, str]) -> list[dict[str, object]]:
    """Return an entity as in a response, where the default has no name."""
    return [{"entity_type": kind, "entity_name": None if name == DEFAULT else name} for kind, name in parts.items()]


def _filter(components: Iterable[Any]) -> dict[str, str | None]:
    """Return the wanted name of each type, None for any. Raise `KafkaError` INVALID_REQUEST."""
    wanted: dict[str, str | None] = {}
    for each in components:
        kind = each.entity_type
        if kind not in _TYPES:
            raise _invalid(f"Unsupported entity type {kind}" if kind else "Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if each.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {each.match_type}")
        if each.match_type == _EXACT and not each.match:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type != _EXACT and each.match:
            name = "DEFAULT" if each.match_type == _DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        wanted[kind] = {_EXACT: each.match, _DEFAULT: DEFAULT}.get(each.match_type)
    if "ip" in wanted and len(wanted) > 1:
        raise _invalid(_COMBINED)
    return wanted


def _matches(parts: Mapping[str, str], wanted: Mapping[str, str | None]) -> bool:
    return all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items())


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
