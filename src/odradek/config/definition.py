"""The definition of a configuration key: type, default, limits, documentation, and its text form.

A dataclass field declared with `integer`, `long`, `double`, `boolean`, `text` or `names` has a `Definition` in its
metadata; `definitions(cls)` collects them. The text forms are those of Kafka's `ConfigDef`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from odradek.model import ConfigurationError
from odradek.model.suggestions import similar_names

Value = bool | int | float | str | tuple[str, ...] | None
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """A key's type, with its number in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """A source of configuration values (KIP-226), with its number in DescribeConfigs; the strongest first."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    GROUP_CONFIG = 8


_WHOLE_NUMBERS: Final = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}
_ANY_CASE: Final = (
    "security.protocol", "group.protocol", "migration.policy", "store.type", "ssl.endpoint.identification.algorithm"
)  # fmt: skip
"""The ends of keys whose texts Kafka compares without case."""

_LONGEST_SHOWN: Final = 40
"""Limit of the characters of an invalid value in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One key. `synonyms` are the broker keys that a topic's or group's key falls back to, strongest first.

    Each synonym has the factor that converts its value to the key's unit. `honoured`, unless empty, has the only values
    that this broker supports; `reason` says why, and what to do instead. `kafka` says what differs in Kafka, if at all.
    """

    name: str
    type: ConfigType
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    excluded: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    nullable: bool = False
    internal: bool = False
    honoured: tuple[Value, ...] = ()
    reason: str = ""
    synonyms: tuple[tuple[str, int], ...] = ()
    kafka: str = ""

    @property
    def attribute(self) -> str:
        """The name of the dataclass field that holds the value."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Return the value of `text`. Raises `ConfigurationError` if it is invalid or not supported."""
        value = self._read(text.strip(" \t\r\n"))  # as Java's trim: other blanks may be part of a name or a password
        self.check(value)
        return value

    def spelled(self, text: str) -> str:
        """Return the text as `choices` spells it, for a key whose texts Kafka compares without case."""
        given = text.strip().lower() if self.name.endswith(_ANY_CASE) and text not in self.choices else None
        return next((choice for choice in self.choices if choice.lower() == given), text)

    def check(self, value: Value) -> None:
        """Raise `ConfigurationError` if `value` is outside the key's limits or not supported."""
        if self.honoured and value not in self.honoured:
            shown = "set" if self.type is ConfigType.PASSWORD else self.format(value)
            raise ConfigurationError(f"{self.name} cannot be {shown} here: {self.reason}")
        if value is None:
            if not self.nullable:
                raise ConfigurationError(f"{self.name} needs a value")
            return
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            wrong = [choice for choice in given if choice not in self.choices]
            if wrong:
                raise self._invalid(self.format(value), f"String must be one of: {', '.join(self.choices)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)

    def format(self, value: Value) -> str | None:
        """Return the text that `parse` turns into `value`."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _check_range(self, value: float) -> None:
        if self.minimum is not None and value < self.minimum:
            raise self._invalid(value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise self._invalid(value, f"Value must be no more than {self.maximum}")
        if value in self.excluded:
            raise ConfigurationError(f"{self.name} cannot be {value:,}")

    def _read(self, text: str) -> Value:
        match self.type:
            case ConfigType.BOOLEAN:
                return self._read_boolean(text)
            case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
                return None if self.nullable and not text else self.spelled(text)
            case ConfigType.LIST:
                items = tuple(item.strip() for item in text.split(",") if item.strip())
                return None if self.nullable and not items else items
            case ConfigType.DOUBLE:
                return self._read_double(text)
            case _:
                return self._read_whole(text, _WHOLE_NUMBERS[self.type])

    def _read_boolean(self, text: str) -> bool:
        if text.lower() not in {"true", "false"}:
            raise self._invalid(text, "Expected value to be either true or false")
        return text.lower() == "true"

    def _read_double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self._invalid(text, "Not a number of type DOUBLE")
        return value

    def _read_whole(self, text: str, largest: int) -> int:
        # int() alone also accepts 1_000, digits of other scripts, and texts of any length.
        digits = text[1:] if text[:1] in {"+", "-"} else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise self._invalid(text, f"Not a number of type {self.type.name}")
        value = int(text)
        if not -largest - 1 <= value <= largest:
            raise self._invalid(text, f"Not a number of type {self.type.name}")
        return value

    def _invalid(self, value: object, reason: str) -> ConfigurationError:
        """Return the error in Kafka's words."""
        return ConfigurationError(
            f"Invalid value {str(value)[:_LONGEST_SHOWN]} for configuration {self.name}: {reason}"
        )


_definitions: Final[dict[type, Mapping[str, Definition]]] = {}


def definitions(cls: type) -> Mapping[str, Definition]:
    """Return a configuration class's keys by Kafka's name, in the order of its fields; cached."""
    known = _definitions.get(cls)
    if known is None:
        found = (each.metadata.get("definition") for each in fields(cls))
        known = MappingProxyType({definition.name: definition for definition in found if definition is not None})
        _definitions[cls] = known
    return known


def parse_all(known: Mapping[str, Definition], properties: Mapping[str, str], kind: str = "") -> dict[str, Value]:
    """Return values by attribute name. Raises `ConfigurationError` for an unknown key or a value outside its limits.

    `kind` is what Kafka's error calls the key: that of a `topic` or `group`.
    """
    values: dict[str, Value] = {}
    for name, text in properties.items():
        definition = known.get(name)
        if definition is None:
            raise unknown_key(name, known, kind)
        values[definition.attribute] = definition.parse(text)
    return values


def unknown_key(name: str, known: Iterable[str], kind: str = "") -> ConfigurationError:
    """Return the error for an unknown key, which names similar keys."""
    close = similar_names(name, known, count=3, cutoff=0.7)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if kind:
        return ConfigurationError(f"Unknown {kind} config name: {name[:250]}{hint}")
    return ConfigurationError(f"there is no configuration key {name[:250]!r}{hint}")


def _key(definition: Definition) -> Any:
    """Return a dataclass field, typed `Any` because mypy gives a field's default the field's type."""
    is_secret = definition.type is ConfigType.PASSWORD
    return field(default=definition.default, metadata={"definition": definition}, repr=not is_secret)


def integer(name: str, default: int | None, doc: str, *, minimum: int | None = None, **more: Any) -> Any:
    """Declare a key of Kafka's type INT: 32 bits."""
    return _key(Definition(name=name, type=ConfigType.INT, default=default, doc=doc, minimum=minimum, **more))


def short(name: str, default: int, doc: str, *, minimum: int | None = None, **more: Any) -> Any:
    """Declare a key of Kafka's type SHORT: 16 bits."""
    return _key(Definition(name=name, type=ConfigType.SHORT, default=default, doc=doc, minimum=minimum, **more))


def long(name: str, default: int | None, doc: str, *, minimum: int | None = None, **more: Any) -> Any:
    """Declare a key of Kafka's type LONG: 64 bits."""
    return _key(Definition(name=name, type=ConfigType.LONG, default=default, doc=doc, minimum=minimum, **more))


def double(name: str, default: float, doc: str, *, minimum: float, maximum: float, **more: Any) -> Any:
    """Declare a key of Kafka's type DOUBLE."""
    return _key(
        Definition(
            name=name, type=ConfigType.DOUBLE, default=default, doc=doc, minimum=minimum, maximum=maximum, **more
        )
    )


def boolean(name: str, default: bool, doc: str, **more: Any) -> Any:  # noqa: FBT001 (a default, not a switch)
    """Declare a key of Kafka's type BOOLEAN."""
    return _key(Definition(name=name, type=ConfigType.BOOLEAN, default=default, doc=doc, **more))


def text(name: str, default: str | None, doc: str, *, choices: tuple[str, ...] = (), **more: Any) -> Any:
    """Declare a key of Kafka's type STRING, free or one of `choices`."""
    return _key(Definition(name=name, type=ConfigType.STRING, default=default, doc=doc, choices=choices, **more))


def password(name: str, doc: str, **more: Any) -> Any:
    """Declare an optional key of Kafka's type PASSWORD, which no text form of the settings shows."""
    return _key(Definition(name=name, type=ConfigType.PASSWORD, default=None, doc=doc, nullable=True, **more))


def imported(name: str, doc: str, **more: Any) -> Any:
    """Declare an optional key of Kafka's type CLASS, an import path."""
    return _key(Definition(name=name, type=ConfigType.CLASS, default=None, doc=doc, nullable=True, **more))


def names(name: str, default: tuple[str, ...] | None, doc: str, *, choices: tuple[str, ...] = (), **more: Any) -> Any:
    """Declare a key of Kafka's type LIST: texts separated by commas."""
    return _key(Definition(name=name, type=ConfigType.LIST, default=default, doc=doc, choices=choices, **more))
