"""Parsing of offsets for commands: times, positions, ranges, and plans in the CSV format of Kafka's tool.

TIME      2026-01-31T23:59:00.000+01:00 (without a zone: UTC), ms since 1970, or P1DT2H30M, that long ago
POSITION  beginning or earliest, end or latest, N (an offset), -N (N before the end), @TIME (the first record since)
RANGE     POSITION, or FROM..TO without the record at TO; either may be missing; FROM:TO for two numbers
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import IO, Final, NamedTuple

import click
from msgspec import Struct

from odradek.model import ConfigurationError, TopicPartition
from odradek.runtime import system_runtime

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.I,
)
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
_MOST_DIGITS: Final = 15
"""Digits of a time in ms: until the year 33658."""
_NUMBERS: Final = re.compile(r"(\d*):(\d*)")
_PLAIN: Final = re.compile(r'(?:[^\s",\ufeff](?:[^",\r\n]*[^\s",])?)?')
_FIELD: Final = re.compile(
    r'[ \t]*+(?:"(?P<quoted>(?:[^"]|"")*+)"[ \t]*+|(?!")(?P<plain>[^,\r\n]*+))(?P<end>,|\r\n?|\n|\Z)'
)
_ENDING: Final = re.compile(r"[^\r\n]*(?P<end>\r\n?|\n|\Z)")
_LINE_END: Final = re.compile(r"\r\n?|\n")
_MOST_NAMED: Final = 5
"""Limit of invalid lines in one message."""
_LINE: Final = "each line is TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET"


def time_ms(text: str) -> int:
    """Parse TIME or @TIME to ms since 1970, as an option's `type`. Raises `click.BadParameter`."""
    text = text.removeprefix("@")
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    if text[:1] in {"P", "p"}:
        return max(system_runtime().clock.now_ms() - duration_ms(text), 0)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2025-01-31T23:59:00 (UTC) or …+01:00, PT1H (an hour ago), ms since 1970"
        ) from None
    found = round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if found < 0:
        raise click.BadParameter(f"{text!r} is before 1970, the earliest time of a record")
    return found


def duration_ms(text: str) -> int:
    """Parse a duration such as `P1DT2H30M` to ms, as an option's `type`. Raises `click.BadParameter`."""
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {name: part for name, part in found.groupdict().items() if part is not None}
    if not parts or text[-1] in "tT":
        raise click.BadParameter(f"{text!r} is not a duration such as P7D, PT12H or P1DT2H30M")
    return round(sum(float(part) * _UNIT_MS[name] for name, part in parts.items()))


class Position(NamedTuple):
    """A position in a partition: `beginning`, `end`, the offset `value`, `last` `value` records, or a `time` in ms."""

    kind: str
    value: int = 0


BEGINNING: Final = Position("beginning")
END: Final = Position("end")


def position(text: str) -> Position:
    """Parse a POSITION. Raises `click.BadParameter`."""
    if text in {"beginning", "earliest"}:
        return BEGINNING
    if text in {"end", "latest"}:
        return END
    if text.startswith("@"):
        return Position("time", time_ms(text))
    if _is_number(text.removeprefix("-"), 2**63):
        return Position("last", int(text[1:])) if text.startswith("-") else Position("offset", int(text))
    raise click.BadParameter(f"{text!r} is not beginning, end, an offset, -N for the last N, or @TIME")


def offset_range(text: str) -> tuple[Position, Position | None]:
    """Parse a RANGE to (from, to), as an option's `type`; `to` is None without an end. Raises `click.BadParameter`."""
    start, dots, end = text.partition("..")
    if not dots and (numbers := _NUMBERS.fullmatch(text)):
        (start, end), dots = numbers.groups(), ":"
    if start.startswith("@") and end and not end.startswith("@") and "T" in end:
        end = f"@{end}"
    found = position(start) if start or not dots else BEGINNING, position(end) if end else None
    if found[1] is not None and found[0].kind == found[1].kind in {"offset", "time"} and found[0] >= found[1]:
        raise click.BadParameter(f"the range {text!r} is empty: it ends where it starts, or before")
    return found


def within(wanted: int, first: int, end: int) -> tuple[int, str]:
    """Return `(offset, remark)`: `wanted` limited to a partition's first and end offset, and why it was, or ""."""
    if wanted < first:
        return first, f"starts at {first}, which is used instead of {wanted}"
    if wanted > end:
        return end, f"ends at {end}, which is used instead of {wanted}"
    return wanted, ""


class PlannedOffset(Struct, frozen=True, kw_only=True):
    """A line of a plan: the offset to commit for a group's partition."""

    line: int
    group: str
    partition: TopicPartition
    offset: int


def read_plan(file: IO[bytes], groups: Sequence[str] | None) -> list[PlannedOffset]:
    """Return the lines of a CSV file. Lines may name only groups in `groups`; None allows any group.

    A line without a group needs exactly one group in `groups`. Raises `ConfigurationError`, which names invalid lines.
    """
    name = getattr(file, "name", "stdin")
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{name} is not UTF-8 text; {_LINE}") from None
    planned: dict[tuple[str, TopicPartition], PlannedOffset] = {}
    bad: list[str] = []
    for line, fields in _rows(text):
        try:
            if fields is None:
                raise ValueError("has a quotation mark that is not closed, or is not at a field's ends")
            each = _planned(line, fields, groups)
            if (each.group, each.partition) in planned:
                raise ValueError(f"names {each.partition} of group {each.group!r} a second time")
            planned[each.group, each.partition] = each
        except ValueError as error:
            bad.append(f"line {line} {error}")
    if bad:
        named = "; ".join(bad[:_MOST_NAMED])
        more = f"; and {len(bad) - _MOST_NAMED} more lines" if len(bad) > _MOST_NAMED else ""
        raise ConfigurationError(f"{name}: {named}{more}; {_LINE}")
    if not planned:
        raise ConfigurationError(f"{name} has no lines; {_LINE}")
    return list(planned.values())


def csv_line(fields: Iterable[object]) -> str:
    """Return a line of CSV that is read as it was written: names with commas, line ends, blanks around are quoted."""
    texts = (text if _PLAIN.fullmatch(text) else '"{}"'.format(text.replace('"', '""')) for text in map(str, fields))
    return ",".join(texts) + "\n"


def _rows(text: str) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number of each line, and its fields; None for one with a wrong quotation mark."""
    fields: list[str] | None = []
    line = first = 1
    at = 0
    while at < len(text) or fields:
        found = _FIELD.match(text, at) or _ENDING.match(text, at)
        assert found is not None, "what is not a field extends to the end of the line"
        fields = None if fields is None or found.re is _ENDING else [*fields, _content(found)]
        at = found.end()
        line += len(_LINE_END.findall(found[0]))
        if found["end"] != ",":
            if fields != [""]:
                yield first, fields
            fields, first = [], line


def _content(found: re.Match[str]) -> str:
    quoted: str | None = found["quoted"]
    return found["plain"].rstrip(" \t") if quoted is None else quoted.replace('""', '"')


def _planned(line: int, fields: Sequence[str], groups: Sequence[str] | None) -> PlannedOffset:
    """Parse one line. Raises `ValueError` with the reason."""
    if len(fields) == 3:
        if groups is None or len(groups) != 1:
            raise ValueError("names no group, which is needed unless one group is named")
        fields = (groups[0], *fields)
    if len(fields) != 4:
        raise ValueError(f"has {len(fields)} instead of 3 or 4 fields")
    group, topic, number, offset = fields
    if groups is not None and group not in groups:
        raise ValueError(f"is for group {group!r}, which the command line does not name")
    if not _is_number(number, 2**31):
        raise ValueError(f"has the partition {number!r}, which is not a number from 0")
    if not _is_number(offset, 2**63):
        raise ValueError(f"has the offset {offset!r}, which is not a number from 0")
    return PlannedOffset(line=line, group=group, partition=TopicPartition(topic, int(number)), offset=int(offset))


def _is_number(text: str, limit: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < limit
