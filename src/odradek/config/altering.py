"""Application of AlterConfigs and IncrementalAlterConfigs to a stored configuration (KIP-133, KIP-339).

The caller validates only the result, so that a request can remove an invalid key.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from odradek.config.definition import ConfigType, Definition, Value
from odradek.model import ErrorCode, KafkaError

LONGEST_VALUE: Final = 32_767
"""Kafka's limit of a value, in characters."""


class AlterOperation(IntEnum):
    """An operation on one key, with its number in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(map(int, AlterOperation))


class Alteration(Struct, frozen=True, kw_only=True):
    """One key of a request. `operation` may be a number outside `AlterOperation`."""

    name: str
    operation: int
    value: str | None


def check_alterations(alterations: Iterable[Alteration]) -> None:
    """Raise `KafkaError` INVALID_REQUEST for a repeated key, a null value, or an unknown operation."""
    seen: set[str] = set()
    for each in alterations:
        if each.name in seen:
            raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
        seen.add(each.name)
        if each.operation not in _OPERATIONS:
            raise KafkaError(ErrorCode.invalid_request, f"unknown operation {each.operation} for the key {each.name}")
        if each.value is None and each.operation != AlterOperation.DELETE:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {each.name}")


def altered(
    own: Mapping[str, str],
    alterations: Iterable[Alteration],
    known: Mapping[str, Definition],
    inherited: Callable[[str], Value],
) -> dict[str, str]:
    """Return `own` with `alterations`, which `check_alterations` has accepted.

    APPEND and SUBTRACT change a list. For a key that `own` does not set, they start from `inherited(name)`.
    Raises `KafkaError` INVALID_CONFIG for APPEND or SUBTRACT on another type, and for values longer than
    `LONGEST_VALUE`.
    """
    result = dict(own)
    for each in alterations:
        value = (each.value or "").strip()
        match each.operation:
            case AlterOperation.SET:
                result[each.name] = value
            case AlterOperation.DELETE:
                result.pop(each.name, None)
            case _:
                definition = known.get(each.name)
                if definition is None or definition.type is not ConfigType.LIST:
                    raise KafkaError(
                        ErrorCode.invalid_config,
                        f"Can't {AlterOperation(each.operation).name} to key {each.name} because its type is not LIST.",
                    )
                before = result.get(each.name)
                items = _items(definition.format(inherited(each.name)) if before is None else before)
                if each.operation == AlterOperation.APPEND:
                    items += [item for item in _items(value) if item not in items]
                else:
                    gone = _items(value)
                    items = [item for item in items if item not in gone]
                result[each.name] = ",".join(items)
        if len(result.get(each.name, "")) > LONGEST_VALUE:
            raise KafkaError(
                ErrorCode.invalid_config,
                "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
            )
    return result


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]
