r"""Formats of printed records: kcat's format strings, and JSON lines that `produce --json` reads back.

```
%s value  %S its bytes (-1: null)   %k key  %K its bytes (-1: null)   %h headers as k=v,k=v
%t topic  %p partition  %o offset   %T timestamp in ms   %% a percent sign   \n \r \t \e \0 \\ \xHH as in C
```
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import click
import msgspec

from odradek.clients import ConsumerRecord
from odradek.model.suggestions import similar_names
from odradek.values.value_formats import Show, bytes_of_fields, show_text

Formatter = Callable[[ConsumerRecord], bytes]
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "e": b"\x1b", "0": b"\0", "\\": b"\\"}

_LINE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HEADER_FIELDS: Final = frozenset({"key", "value", "value_encoding", "value_error"})
_RECORD_FIELDS: Final = _HEADER_FIELDS | {
    "topic", "partition", "offset", "timestamp", "key_encoding", "key_error", "headers", "leader_epoch",
}  # fmt: skip


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


def json_formatter(show_key: Show = show_text, show_value: Show = show_text) -> Formatter:
    """Return a function that formats a record as one JSON object: Kafka's names in snake_case, see `value_formats`."""

    def render(record: ConsumerRecord) -> bytes:
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **show_key(record.key).fields("key"),
            **show_value(record.value).fields("value"),
            "headers": [{"key": key, **show_text(value).fields("value")} for key, value in record.headers],
            "leader_epoch": record.leader_epoch,
        }
        return msgspec.json.encode(fields) + b"\n"

    return render


def record_of_json(line: bytes, key_format: str = "text", value_format: str = "text") -> NewRecord:
    """Return the record of a line of `json_formatter`; the formats are those of a key and a value without a mark.

    Raises `ValueError` with the reason, also for unknown fields and a record without a value.
    """
    try:
        fields = _LINE.decode(line)
        _check_names(fields, _RECORD_FIELDS, "value")
        headers = []
        for header in (
            msgspec.json.decode(fields.get("headers", b"null"), type=list[dict[str, msgspec.Raw]] | None) or ()
        ):
            _check_names(header, _HEADER_FIELDS, "key")
            headers.append((msgspec.json.decode(header["key"], type=str), bytes_of_fields(header, "value", "text")))
        return NewRecord(
            value=bytes_of_fields(fields, "value", value_format),
            key=bytes_of_fields(fields, "key", key_format),
            headers=tuple(headers),
            partition=_whole(fields, "partition"),
            timestamp_ms=_whole(fields, "timestamp"),
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _check_names(fields: Mapping[str, object], known: frozenset[str], needed: str) -> None:
    for name in fields:
        if name not in known:
            similar = similar_names(name, known)
            hint = f"; did you mean {similar[0]!r}?" if similar else f", only {', '.join(sorted(known))}"
            raise ValueError(f"there is no field {name!r}{hint}")
    if needed not in fields:
        raise ValueError(f"it has no field {needed!r}; a null is written as null")


def _whole(fields: Mapping[str, msgspec.Raw], name: str) -> int | None:
    try:
        return msgspec.json.decode(fields.get(name, b"null"), type=int | None)
    except msgspec.ValidationError:
        raise ValueError(f"{name} must be an integer, not {bytes(fields[name]).decode()}") from None


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
