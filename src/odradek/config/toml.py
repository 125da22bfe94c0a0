"""A TOML file as typed structs of msgspec, whose errors name the key, the nearest key that exists, and the line."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

import msgspec
from msgspec import inspect

from odradek.model import ConfigurationError, PreconditionError
from odradek.model.suggestions import similar_names

T = TypeVar("T")

_HEADER: Final = re.compile(r"\s*\[+([^\]]+)\]+")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES: Final = ('"""', "'''")
_MISSING: Final = re.compile("Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
_CHOICE: Final = re.compile("Invalid enum value (.*)", re.DOTALL)
_NAMES: Final = (
    (" | null`", "`"),
    ("`array`", "a list"),
    ("`object`", "a table"),
    ("`str`", "a text in quotes"),
    ("`int`", "a whole number"),
    ("`bool`", "true or false"),
    ("`datetime`", "a moment such as 2024-03-01T00:00:00Z"),
)
"""Names of types in msgspec's messages, and those for readers of TOML."""


class TomlKeyError(ConfigurationError):
    """A key of a file is invalid. `line` is the invalid line within the key's value, from 1, or None if unknown."""

    def __init__(self, key: str, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.line = line


class TomlPreconditionError(TomlKeyError, PreconditionError):
    """A key of a file names something that is missing or cannot be used: a topic, a directory, a package."""


class Text(str):
    """A text with a character that is not a space; spaces around it are removed. Subclasses say what else it is."""

    __slots__ = ()
    form: ClassVar[str] = ".*"
    kind: ClassVar[str] = ""

    @staticmethod
    def check(text: str, /) -> object:
        """Raise an error if a text of this form is not valid."""
        return text

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the value of a key. Raise `TypeError`, `ValueError`, or what `check` raises, if it is none."""
        if not isinstance(value, str):
            raise TypeError(f"expected a text in quotes, got {value!r}")
        if not (text := value.strip()):
            raise ValueError("the text is empty")
        if not re.fullmatch(cls.form, text, re.DOTALL):
            raise ValueError(f"expected {cls.kind}, got {text!r}")
        cls.check(text)
        return cls(text)


def converted(values: object, kind: type[T], *, custom: Callable[[Any, Any], Any] | None = None, key: str = "") -> T:
    """Return the values of the table `key` as `kind`. Raise `TomlKeyError` for the first key that is invalid.

    `custom` is msgspec's `dec_hook`. Each `Text` is a `str` in the result.
    """
    try:
        found: T = _plain(msgspec.convert(values, kind, dec_hook=custom))
        return found
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
    path = re.findall(r"[^.\[\]`]+", place)
    there = _type_at(inspect.type_info(kind), path)
    name = ".".join([key, *(each for each in path if not each.isdecimal() and not each.isupper())]).lstrip(".")
    if missing := _MISSING.fullmatch(problem):
        name = f"{name}.{missing[1]}".lstrip(".")
        raise TomlKeyError(name, f"{name} is missing")
    if unknown := _UNKNOWN.fullmatch(problem):
        fields = there.fields if isinstance(there, inspect.StructType) else ()
        known = [each.encode_name for each in fields if each.encode_name.islower()]
        near = similar_names(unknown[1], known)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        name = f"{name}.{unknown[1]}".lstrip(".")
        raise TomlKeyError(name, f"there is no key {name}: {hint}")
    if (choice := _CHOICE.fullmatch(problem)) and isinstance(there, inspect.LiteralType):
        raise TomlKeyError(name, f"{name} is one of {', '.join(map(str, there.values))}, not {choice[1]}")
    for ours, of_toml in _NAMES:
        problem = problem.replace(ours, of_toml)
    raise TomlKeyError(name, f"{name}: {problem[0].lower()}{problem[1:]}")


def _plain(value: Any) -> Any:
    """Return a value with each `Text` as a `str`: PySpark refuses subclasses."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        )
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return str(value) if isinstance(value, Text) else value


def _type_at(kind: inspect.Type, path: list[str]) -> inspect.Type:
    """Return the type of the value at `path` below a value of `kind`."""
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    if not path:
        return kind
    name, *rest = path
    if isinstance(kind, inspect.StructType):
        return _type_at(next(each.type for each in kind.fields if each.encode_name == name), rest)
    return _type_at(kind.item_type, rest) if isinstance(kind, inspect.VarTupleType) else kind


def place_of(path: Path, text: str, error: Exception) -> str:
    """Return `FILE:LINE` of the key that an error of `text` is about, or `FILE` if there is none."""
    if not isinstance(error, TomlKeyError) or (line := line_of(key_lines(text), error.key)) is None:
        return str(path)
    return f"{path}:{line if error.line is None else line_in_value(text, line, error.line)}"


def key_lines(text: str) -> dict[str, int]:
    """Return the line number, from 1, of each table header and key by its dotted name, except in inline tables."""
    lines: dict[str, int] = {}
    table, closing = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is not None:
            if closing in line:
                closing = None
            continue
        if header := _HEADER.match(line):
            table = _dotted(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{_dotted(key[1])}".lstrip("."), number)
        closing = next((quotes for quotes in _QUOTES if line.count(quotes) == 1), None)
    return lines


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a key, else of the nearest table around it, else None."""
    while key:
        if key in lines:
            return lines[key]
        key = key.rpartition(".")[0]
    return None


def line_in_value(text: str, line: int, line_of_value: int) -> int:
    """Return the line of `text` that is line `line_of_value` (from 1) of a value whose key is on line `line`."""
    rows = text.splitlines()
    first = line
    if rows[line - 1].partition("=")[2].strip().strip("\"'") == "":
        first = next((number for number in range(line + 1, len(rows) + 1) if rows[number - 1].strip()), line)
    return first + line_of_value - 1


def _dotted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
