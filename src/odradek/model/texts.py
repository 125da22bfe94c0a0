"""Texts that a stranger may have chosen, such as names of topics, groups, users and clients, as people may see them."""

import json
import re
import unicodedata
from typing import Final

_NOT_PLAIN: Final = re.compile(r"[^ -~]")
_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that change how others are shown, or are not shown: controls, bidirectional overrides."""


def one_line(text: str) -> str:
    r"""Return text on one line, whose invisible characters are escapes, such as `\n`, `\x1b` and `\u202e`."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_as_escape, text)


def several_lines(text: str) -> str:
    r"""Return text whose invisible characters are symbols or escapes, such as `␛` and `\u202e`; tabs and lines stay."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_as_symbol, text)


def in_json(text: str) -> str:
    r"""Return JSON, made by `json.dumps` without `ensure_ascii`, whose invisible characters are escapes."""
    return text if text.isprintable() else _NOT_PLAIN.sub(_as_json, text)


def _as_json(found: re.Match[str]) -> str:
    character = found[0]
    return character if unicodedata.category(character) not in _ESCAPED else json.dumps(character)[1:-1]


def _as_escape(found: re.Match[str]) -> str:
    character = found[0]
    return character if unicodedata.category(character) not in _ESCAPED else ascii(character)[1:-1]


def _as_symbol(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\t":
        return character
    return chr(0x2400 + ord(character)) if character < " " else _as_escape(found)
