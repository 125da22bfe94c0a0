r"""Formats of printed records: kcat's format strings, and JSON lines that `produce --json` reads back.

```
%s value  %S its bytes (-1: null)   %k key  %K its bytes (-1: null)   %h headers as k=v,k=v
%t topic  %p partition  %o offset   %T timestamp in ms   %% a percent sign   \n \r \t \e \0 \\ \xHH as in C
```
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click

from odradek.cli.common import json_line
from odradek.clients import ConsumerRecord

Formatter = Callable[[ConsumerRecord], bytes]
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "e": b"\x1b", "0": b"\0", "\\": b"\\"}


class NewRecord(NamedTuple):
    """A record to produce; the producer chooses a `partition` or `timestamp_ms` of None."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def unescape(text: str) -> bytes:
    r"""Return `\n`, `\t`, `\xHH` … as bytes. Raises `click.BadParameter` for another escape."""
    made = bytearray()
    rest = iter(text)
    for character in rest:
        if character != "\\":
            made += character.encode()
            continue
        escaped = next(rest, "")
        if escaped == "x":
            digits = next(rest, "") + next(rest, "")
            try:
                made += bytes.fromhex(digits)
            except ValueError:
                raise click.BadParameter(f"\\x takes two hexadecimal digits, not {digits!r}") from None
        elif escaped in _ESCAPES:
            made += _ESCAPES[escaped]
        else:
            raise click.BadParameter(f"unknown escape \\{escaped} in {text!r}")
    return bytes(made)


def formatter(template: str, *, null: bytes = b"") -> Formatter:
    """Return a function that formats a record by `template`; `null` replaces a key or value that is null.

    Raises `click.BadParameter` for an unknown `%` letter.
    """
    pieces: list[bytes | Formatter] = []
    literal, _, rest = template.partition("%")
    pieces.append(unescape(literal))
    while _:
        letter, rest = rest[:1], rest[1:]
        if letter == "%":
            pieces.append(b"%")
        elif letter in _FIELDS:
            pieces.append(_FIELDS[letter](null))
        else:
            known = " ".join(f"%{each}" for each in _FIELDS)
            raise click.BadParameter(f"unknown %{letter} in {template!r}; there are {known} and %%")
        literal, _, rest = rest.partition("%")
        pieces.append(unescape(literal))
    merged = [piece for piece in pieces if piece]
    return lambda record: b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in merged])


def json_formatter(record: ConsumerRecord) -> bytes:
    """Format a record as one JSON object: Kafka's names in snake_case, bytes as base64."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
        "leader_epoch": record.leader_epoch,
    }
    return json_line(fields).encode() + b"\n"


def record_of_json(line: bytes) -> NewRecord:
    """Return the record of a line of `json_formatter`. Raises `ValueError` with the reason."""
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")  # noqa: TRY004 - to the caller it is a bad value
        return NewRecord(
            value=_bytes(fields.get("value")),
            key=_bytes(fields.get("key")),
            headers=tuple((str(header["key"]), _bytes(header.get("value"))) for header in fields.get("headers") or ()),
            partition=_whole(fields, "partition"),
            timestamp_ms=_whole(fields, "timestamp"),
        )
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"a field differs from what `odradek consume --json` prints ({error})") from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{name} must be an integer, not {value!r}")
    return value


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


def _headers(record: ConsumerRecord, null: bytes) -> bytes:
    return b",".join([key.encode() + b"=" + (null if value is None else value) for key, value in record.headers])


_FIELDS: Final[Mapping[str, Callable[[bytes], Formatter]]] = {
    "s": lambda null: lambda record: null if record.value is None else record.value,
    "S": lambda _: lambda record: _length(record.value),
    "k": lambda null: lambda record: null if record.key is None else record.key,
    "K": lambda _: lambda record: _length(record.key),
    "h": lambda null: lambda record: _headers(record, null),
    "t": lambda _: lambda record: record.topic.encode(),
    "p": lambda _: lambda record: b"%d" % record.partition,
    "o": lambda _: lambda record: b"%d" % record.offset,
    "T": lambda _: lambda record: b"%d" % record.timestamp,
}
