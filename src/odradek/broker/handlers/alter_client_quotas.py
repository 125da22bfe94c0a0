"""AlterClientQuotas: set and remove quotas of users, client ids and IP addresses (KIP-546, KIP-612), on any broker.

When the response is sent, this broker uses the new quotas; other brokers read them from the metadata tree.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.broker.cluster.config_changes import ConfigChange
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError
from odradek.security.quotas import check_entity, check_key, quota_text

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest as Message
    from kio.schema.alter_client_quotas.v1.request import EntryData


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one entry per entity, which is altered completely or not at all; INVALID_REQUEST for invalid quotas."""
    results: list[KafkaError | None] = []
    changes: dict[int, ConfigChange] = {}
    async for place, entry in cooperatively(enumerate(message.entries), _weight):
        try:
            changes[place] = _change(entry)
            results.append(None)
        except KafkaError as error:
            results.append(error.with_traceback(None))
    if changes and not message.validate_only:
        try:
            made = await broker.metadata_loop.change_configs(list(changes.values()))
        except KafkaError as error:
            made = [error] * len(changes)
        async for place, result in cooperatively(zip(changes, made, strict=True)):
            results[place] = result
            if result is None:
                ops = message.entries[place].ops
                texts = (f"removed {op.key}" if op.remove else f"set {op.key}={op.value:g}" for op in ops)
                names = (f"{each.entity_type} {each.entity_name!r}" for each in message.entries[place].entity)
                context.log_change(f"quotas of {', '.join(names)}: {', '.join(texts)}")
    return _response(message, results)


def _response(message: "Message", results: Sequence[KafkaError | None]) -> dict[str, object]:
    return {
        "entries": [
            {
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message,
                "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
            }
            for entry, error in zip(message.entries, results, strict=True)
        ]
    }


def _weight(numbered: tuple[int, Any]) -> int:
    _, entry = numbered
    return 4 + len(entry.entity) + 4 * len(entry.ops)


def _change(entry: "EntryData") -> ConfigChange:
    entity = check_entity((each.entity_type, each.entity_name) for each in entry.entity)
    for op in entry.ops:
        check_key(entity, op.key)
    quotas = {op.key: None if op.remove else quota_text(op.key, op.value) for op in entry.ops}
    return ConfigChange(client=entity, change=_altered(quotas))


def _altered(quotas: Mapping[str, str | None]) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    """Return a function that sets `quotas` and removes those that are None; other keys of a configuration stay."""

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        return {key: value for key, value in {**before, **quotas}.items() if value is not None}

    return change
