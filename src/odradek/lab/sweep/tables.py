"""A TOML table of a sweep's file, whose numbers may be a list or a range."""

import math
from collections.abc import Sequence
from typing import Final

from odradek.config.toml_table import TomlTable

MOST_NUMBERS: Final = 100_000
"""The longest list that `Table.numbers` makes of a range."""


class Table(TomlTable):
    """A `TomlTable` with lists and ranges of numbers."""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; empty only if the key is missing."""
        found = super().texts(key)
        if not found and self.has(key):
            raise self.error(key, "is empty")
        return found

    def numbers(self, key: str, default: Sequence[float]) -> tuple[float, ...]:
        """Return the numbers of a list, of a single number, or of `{ from = 10, to = 100, step = 10 }`."""
        value = self._values[key] if self.has(key) else list(default)
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
                    f"has {item!r}, which is not a number: write a number, a list of numbers, or "
                    "{ from = 10, to = 100, step = 10 }",
                )
        return tuple(items)

    def _range(self) -> tuple[int, int, int]:
        """Return first, last and step of a table like `{ from = 10, to = 100, step = 10 }`."""
        first, last = self._value("from", int), self._value("to", int)
        step = self.number("step", at_least=1)
        self.done()
        if last < first:
            raise self.error("to", f"is {last}, before the first number, {first}")
        return first, last, step or 1
