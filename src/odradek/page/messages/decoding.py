"""Keys and values as text or as trees of values, in a format that is guessed or chosen.

```
guessed    the bytes
tombstone  null
json       UTF-8 with an object or array of JSON
text       other UTF-8 without unusual control characters
msgpack    a whole MessagePack map or array
confluent  0, a schema's id (int32), and data in Avro or Protobuf, which need their schema
hex        everything else
```
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from odradek.model.texts import several_lines
from odradek.values.value_formats import Show

GUESS: Final = "guess"
PLAIN_FORMATS: Final = (GUESS, "text", "json", "msgpack", "hex")
"""Formats that need no schema."""
MOST_NODES: Final = 2_000
"""Limit of the values in a tree; a larger one is shown as text."""
_MOST_DEPTH: Final = 64
"""Limit of the depth of a tree: templates recurse for each level."""
_HEX_ROW: Final = 16
_MOST_DUMPED: Final = 64 << 10
"""Limit of the bytes that a dump shows."""
_CONFLUENT_BYTES: Final = 5
_UNUSUAL: Final = bytes(set(range(0x20)) - set(b"\t\n\r\x1b"))
"""Bytes that text does not have; bytes with one are taken for binary."""


class Decoded(Struct, frozen=True, kw_only=True):
    """A key or value: `tree` has the values of a JSON-like format, otherwise `text` is shown."""

    format: str
    size_bytes: int | None
    text: str = ""
    tree: Any = None
    is_container: bool = False
    """Whether it is an object or an array, which has no `tree` if it is too large."""
    error: str = ""
    """The reason why the chosen format does not show the bytes."""

    @property
    def has_tree(self) -> bool:
        return self.tree is not None


def decode(
    data: bytes | None, name: str = GUESS, schemas: Mapping[str, Show] | None = None, *, most: int | None = None
) -> Decoded:
    """Return bytes in the format `name`, one of `PLAIN_FORMATS` or of `schemas`; if it does not fit, as guessed.

    Of longer text and JSON, only `most` characters and one more are returned.
    """
    if data is None:
        return Decoded(format="tombstone", size_bytes=None)
    if most is not None and len(data) > most:
        if (head := _head(data, name, most)) is not None:
            return head
        if name in (GUESS, "hex"):
            return _hex(data, most) if name == "hex" else _guessed(data, most)
    if name == GUESS:
        return _guessed(data)
    try:
        if schemas and name in schemas:
            return _with_schema(data, name, schemas[name])
        return _PLAIN[name](data)
    except (ValueError, RecursionError) as error:
        reason = several_lines(str(error)) or "it is nested too deep"
        return msgspec.structs.replace(_guessed(data), error=f"not shown as {name}: {reason}")


def _head(data: bytes, name: str, most: int) -> Decoded | None:
    """Return the beginning of text or JSON without building a tree; None for other bytes and formats."""
    if name not in (GUESS, "text", "json"):
        return None
    is_json = name != "text" and data[:_HEX_ROW].lstrip()[:1] in (b"{", b"[")
    try:
        text = data.decode()
        if is_json:
            msgspec.json.decode(data, type=msgspec.Raw)  # checks it
    except UnicodeDecodeError:
        return None
    except ValueError:
        is_json = False
    if not is_json and (name == "json" or (name == GUESS and _is_binary(data))):
        return None
    kind = "json" if is_json else "text"
    return Decoded(format=kind, size_bytes=len(data), text=several_lines(text[: most + 1]), is_container=is_json)


def _is_binary(data: bytes) -> bool:
    return len(data.translate(None, _UNUSUAL)) < len(data)


def _guessed(data: bytes, most_dumped: int = _MOST_DUMPED) -> Decoded:
    for attempt in (_json, _text, _msgpack):
        if attempt is _text and _is_binary(data):
            continue
        try:
            found = attempt(data)
        except (ValueError, RecursionError):
            continue
        if found.is_container or attempt is _text:
            return found
    if len(data) > _CONFLUENT_BYTES and data[0] == 0:
        (schema_id,) = struct.unpack(">i", data[1:_CONFLUENT_BYTES])
        if 0 < schema_id < 1_000_000:
            note = f"It may have the schema {schema_id} of a schema registry."
            return msgspec.structs.replace(_hex(data, most_dumped), error=note)
    return _hex(data, most_dumped)


def _text(data: bytes) -> Decoded:
    return Decoded(format="text", size_bytes=len(data), text=several_lines(data.decode()))


def _json(data: bytes) -> Decoded:
    return _of_tree("json", msgspec.json.decode(data), data, data.decode())


def _msgpack(data: bytes) -> Decoded:
    tree = msgspec.msgpack.decode(data)
    return _of_tree("msgpack", tree, data, repr(tree))


def _of_tree(name: str, tree: Any, data: bytes, text: str) -> Decoded:
    is_container = isinstance(tree, dict | list)
    shown = {"tree": tree} if is_container and _is_shown(tree) else {"text": several_lines(text)}
    return Decoded(format=name, size_bytes=len(data), is_container=is_container, **shown)


def _hex(data: bytes, most: int = _MOST_DUMPED) -> Decoded:
    rows = []
    for place in range(0, min(len(data), most), _HEX_ROW):
        row = data[place : place + _HEX_ROW]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"{place:08x}  {row.hex(' '):<47}  {letters}")
    if len(data) > most:
        rows.append("…")
    return Decoded(format="hex", size_bytes=len(data), text="\n".join(rows))


def _with_schema(data: bytes, name: str, show: Show) -> Decoded:
    shown = show(data)
    if shown.error is not None:
        raise ValueError(shown.error)
    assert isinstance(shown.content, msgspec.Raw)
    return msgspec.structs.replace(_json(bytes(shown.content)), format=name, size_bytes=len(data))


def _is_shown(tree: object) -> bool:
    """Return whether a tree is small, without extension types, and its names are strings or integers."""
    left, level = MOST_NODES, [tree]
    for _ in range(_MOST_DEPTH + 1):
        left -= len(level)
        below: list[object] = []
        for node in level:
            if isinstance(node, msgspec.msgpack.Ext):
                return False
            if isinstance(node, dict):
                if not all(type(name) in (str, int) for name in node):
                    return False
                below.extend(node.values())
            elif isinstance(node, list):
                below.extend(node)
            if len(below) > left:
                return False
        level = below
    return not level


_PLAIN: Final[dict[str, Callable[[bytes], Decoded]]] = {
    "text": _text, "json": _json, "msgpack": _msgpack, "hex": _hex,
}  # fmt: skip
