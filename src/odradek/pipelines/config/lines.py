"""Finds the line of a key in a valid TOML text: `tomllib` does not report positions."""

import re
from collections.abc import Mapping
from typing import Final

_HEADER: Final = re.compile(r"\s*\[+([^\]]+)\]+")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES: Final = ('"""', "'''")


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
            table = _plain(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{_plain(key[1])}".lstrip("."), number)
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


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
