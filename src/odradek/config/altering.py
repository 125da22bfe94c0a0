"""What a topic's or a broker's own configuration becomes by a request to alter it (KIP-133, KIP-339).

From the keys that are set there now to those that shall be; whether the result is valid is checked by the rules of its
kind afterwards, so that a wrong key that some tool wrote can be removed.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from odradek.config.definition import ConfigType, Definition, Value
from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass

LONGEST_VALUE: Final = 32_767
"""As in Kafka; nothing that means anything is longer."""


class AlterOperation(IntEnum):
    """What is to be done with one key, numbered as IncrementalAlterConfigs numbers it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One key of a request. `operation` is a number that may be none of `AlterOperation`."""

    name: str
    operation: int
    value: str | None


def check_alterations(alterations: Iterable[Alteration]) -> None:
    """Raise `KafkaError` INVALID_REQUEST if a key comes twice, a value is null, or an operation does not exist."""
    seen: set[str] = set()
    for each in alterations:
        if each.name in seen:
            raise KafkaError(ErrorCode.invalid_request, f"the request has the key {each.name} twice")
        seen.add(each.name)
        if each.operation not in set(AlterOperation):
            raise KafkaError(ErrorCode.invalid_request, f"there is no operation {each.operation} on a key")
        if each.value is None and each.operation != AlterOperation.DELETE:
            raise KafkaError(ErrorCode.invalid_request, f"null is no value for {each.name}")


def altered(
    own: Mapping[str, str],
    alterations: Iterable[Alteration],
    known: Mapping[str, Definition],
    inherited: Callable[[str], Value],
) -> dict[str, str]:
    """`own` after `alterations`, which are checked. `inherited` is what holds for a known key that is not set there.

    A list that is not set grows, or shrinks, from what it inherits. Raises `KafkaError` INVALID_CONFIG if a key that
    is no list should, and for values of more than `LONGEST_VALUE` characters.
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
                    raise KafkaError(ErrorCode.invalid_config, f"{each.name} is no list: nothing is added or removed")
                before = result.get(each.name)
                items = _items(definition.format(inherited(each.name)) if before is None else before)
                if each.operation == AlterOperation.APPEND:
                    items += [item for item in _items(value) if item not in items]
                else:
                    gone = _items(value)
                    items = [item for item in items if item not in gone]
                result[each.name] = ",".join(items)
        if len(result.get(each.name, "")) > LONGEST_VALUE:
            raise KafkaError(ErrorCode.invalid_config, f"a value of {each.name} has at most {LONGEST_VALUE} characters")
    return result


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]
