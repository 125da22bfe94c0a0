r"""Java's properties format, the format of `server.properties`.

    # comment                 also with !
    key = value               separated by =, : or blanks
    long = first, \
           second             a backslash joins the next line, whose leading blanks are dropped
    escapes = \t \n \\ \u00e9

The last of two equal keys wins, as in Java.
"""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from operator import index
from pathlib import PurePath
from typing import Any, Final

from odradek.model import ConfigurationError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)


def decode_properties(name: str, data: bytes) -> dict[str, str]:
    """Return the keys and values of a file in UTF-8, in UTF-16 with a mark, or in ISO 8859-1 as Java writes it.

    Raises `ConfigurationError`, which has the file's `name`, if it is not a text.
    """
    try:
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.removeprefix(BOM_UTF8).decode("iso-8859-1")
    if "\0" in text:
        raise ConfigurationError(f"{name} is not UTF-8 or ISO 8859-1 text: it has zero bytes")
    return parse_properties(text)


def property_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return properties with Kafka's texts of Python's values: "true" for True, "a,b" for a list.

    Raises `TypeError`, which names the key, for a value that no property has.
    """
    return {key: property_text(key, value) for key, value in values.items()}


def property_text(key: str, value: Any) -> str:
    """Return the text of one value, as `property_texts` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | PurePath):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, list | tuple):
        return ",".join(property_text(key, each) for each in value)
    try:
        return str(index(value))
    except TypeError:
        expected = "a string, a number, a bool or a list of these"
        raise TypeError(f"{key} is {expected}, not of type {type(value).__name__}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a properties file. Raises `ConfigurationError` for an invalid escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        end = match.end() if match else 0
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:end])] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments and blank lines, each joined with the next if a backslash ends it."""
    lines: list[str] = []
    joined: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        joined = (joined or "") + line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        lines.append(joined)
        joined = None
    if joined:
        lines.append(joined)
    return lines


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise ConfigurationError(f"\\u needs four hexadecimal digits in {text!r}")
        return chr(int(escaped[1:], 16)) if escaped[:1] == "u" else _ESCAPES.get(escaped, escaped)

    if "\\" not in text:
        return text
    try:
        # Java escapes a character beyond 16 bits as a surrogate pair.
        return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigurationError(f"half a character is escaped in {text!r}") from None
