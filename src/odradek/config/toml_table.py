"""A TOML table whose values are read key by key with a type, and whose unknown keys are errors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from odradek.model import ConfigurationError, PreconditionError
from odradek.model.suggestions import similar_names

T = TypeVar("T")


class TomlKeyError(ConfigurationError):
    """A key of a file is invalid. `line` is the invalid line within the key's value, from 1, or None if unknown."""

    def __init__(self, key: str, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.line = line


class TomlPreconditionError(TomlKeyError, PreconditionError):
    """A key of a file names something that is missing or cannot be used: a topic, a directory, a package."""


_KINDS: Final[dict[type, str]] = {
    str: "a text in quotes",
    int: "a whole number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a table",
}


class TomlTable:
    """A table at the dotted path `place` of a TOML file. Methods raise `TomlKeyError`, which names the key."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        self._values = values
        self._place = place
        self._known: list[str] = []

    def text(self, key: str, default: str | None = None) -> str:
        """Return a non-empty text; the key is required unless there is a default."""
        value = self._value(key, str, default)
        if not value.strip():
            raise self.error(key, "is empty")
        return value.strip()

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def number(self, key: str, *, at_least: int) -> int | None:
        """Return a whole number, or None if the key is missing."""
        if not self.has(key):
            return None
        value = self._value(key, int)
        if value < at_least:
            raise self.error(key, f"is at least {at_least}, not {value}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        return self._value(key, bool, default)

    def moment_ms(self, key: str) -> int | None:
        """Return a date with time as milliseconds since the epoch, in UTC if it has no offset; None if missing."""
        if not self.has(key):
            return None
        value = self._values[key]
        if not isinstance(value, datetime):
            raise self.error(key, "is a date and time such as 2024-03-01T00:00:00Z, without quotes")
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of `choices`."""
        value = self.text(key, default)
        if value not in choices:
            raise self.error(key, f"is one of {', '.join(choices)}, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty if the key is missing."""
        value = self._value(key, list, [])
        if not all(isinstance(item, str) and item.strip() for item in value):
            raise self.error(key, f"must be {_KINDS[list]}")
        return tuple(item.strip() for item in value)

    def mapping(self, key: str) -> dict[str, str]:
        """Return a table of arbitrary keys, such as Kafka's, with numbers and booleans as texts."""
        value = self._value(key, dict, {})
        found = {}
        for name, item in value.items():
            if isinstance(item, bool):
                found[name] = str(item).lower()
            elif isinstance(item, str | int | float):
                found[name] = str(item)
            else:
                raise self.error(key, f"has {name!r}, which is not a text, number or boolean; are its dots in quotes?")
        return found

    def table(self, key: str) -> "TomlTable":
        """Return an inner table, empty if the key is missing."""
        if not self.has(key) and (near := self._misspelled(key)):
            raise self._unknown(near, f": did you mean {key}?")
        return TomlTable(self._value(key, dict, {}), self._name(key))

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._values

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that are present; `done` accepts them."""
        self._known.extend(self._values)
        return tuple(self._values)

    def done(self) -> None:
        """Raise `TomlKeyError` for a key that was never read."""
        for key in self._values:
            if key not in self._known:
                near = similar_names(key, self._known)
                hint = f": did you mean {near[0]}?" if near else f": there are {', '.join(dict.fromkeys(self._known))}"
                raise self._unknown(key, hint)

    def error(self, key: str, problem: str) -> TomlKeyError:
        """Return an error about a key: if it is missing, one that names a similar key in its place."""
        if key not in self._values and (near := self._misspelled(key)):
            return self._unknown(near, f": did you mean {key}?")
        return TomlKeyError(self._name(key), f"{self._name(key)} {problem}")

    def _value(self, key: str, kind: type[T], default: T | None = None) -> T:
        if not self.has(key):
            if default is None:
                raise self.error(key, "is missing")
            return default
        value = self._values[key]
        # A boolean is an integer in Python, not in TOML.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"must be {_KINDS[kind]}")
        return value

    def _misspelled(self, key: str) -> str | None:
        """Return a key of the table that was not read and is similar to `key`, or None."""
        others = [each for each in self._values if each not in self._known]
        return next(iter(similar_names(key, others, cutoff=0.75)), None)

    def _unknown(self, key: str, hint: str) -> TomlKeyError:
        return TomlKeyError(self._name(key), f"there is no key {self._name(key)}{hint}")

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key
