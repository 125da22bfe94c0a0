"""A TOML table whose values are read key by key with a type, and whose unknown keys are errors."""

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from odradek.lab.case import LabError

T = TypeVar("T")

MOST_NUMBERS: Final = 100_000
"""The longest list that `Table.numbers` makes of a range."""

_KINDS: Final[dict[type, str]] = {
    str: "a text in quotes",
    int: "a whole number",
    list: "a list of texts",
    dict: "a table",
}


class Table:
    """A table of a file. Methods raise `LabError`, one line that names the key."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        self._values = values
        self._place = place
        self._known: list[str] = []

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a non-empty text, or the default if the key is missing."""
        if not self._has(key):
            return default
        value = self._value(key, str).strip()
        if not value:
            raise self.error(key, "is empty")
        return value

    def number(self, key: str, default: int | None = None, *, at_least: int) -> int | None:
        """Return a whole number, or the default if the key is missing."""
        if not self._has(key):
            return default
        value = self._value(key, int)
        if value < at_least:
            raise self.error(key, f"is at least {at_least}, not {value}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty if the key is missing."""
        if not self._has(key):
            return ()
        value = self._value(key, list)
        if not all(isinstance(item, str) and item.strip() for item in value):
            raise self.error(key, f"must be {_KINDS[list]}")
        if not value:
            raise self.error(key, "is empty")
        return tuple(item.strip() for item in value)

    def numbers(self, key: str, default: Sequence[float]) -> tuple[float, ...]:
        """Return the numbers of a list, of a single number, or of `{ from = 10, to = 100, step = 10 }`."""
        value = self._values[key] if self._has(key) else list(default)
        if isinstance(value, dict):
            first, last, step = self.table(key)._range()
            if (count := (last - first) // step + 1) > MOST_NUMBERS:
                raise self.error(key, f"has {count:,} numbers: use at most {MOST_NUMBERS:,}")
            return tuple(range(first, last + 1, step))
        items = value if isinstance(value, list) else [value]
        if not items:
            raise self.error(key, "is empty")
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
                raise self.error(
                    key,
                    f"has {item!r}, which is no number: write a number, a list of numbers, or "
                    "{ from = 10, to = 100, step = 10 }",
                )
        return tuple(items)

    def table(self, key: str) -> "Table":
        """Return an inner table, empty if the key is missing."""
        return Table(self._value(key, dict) if self._has(key) else {}, self._name(key))

    def done(self) -> None:
        """Raise for a key that was never read."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                hint = f": did you mean {near[0]}?" if near else f": there are {', '.join(dict.fromkeys(self._known))}"
                raise LabError(f"there is no key {self._name(key)}{hint}")

    def error(self, key: str, problem: str) -> LabError:
        """Return an error about a key."""
        return LabError(f"{self._name(key)} {problem}")

    def _range(self) -> tuple[int, int, int]:
        """Return first, last and step of this table, which is `{ from = 10, to = 100, step = 10 }`."""
        first, last = self._value("from", int), self._value("to", int)
        step = self.number("step", 1, at_least=1)
        self.done()
        if last < first:
            raise self.error("to", f"is {last}, before the first number, {first}")
        return first, last, step or 1

    def _has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._values

    def _value(self, key: str, kind: type[T]) -> T:
        if not self._has(key):
            raise self.error(key, "is missing")
        value = self._values[key]
        # A boolean is an integer in Python, not in TOML.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"must be {_KINDS[kind]}")
        return value

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key
