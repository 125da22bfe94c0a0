"""Keys and values as text and JSON: the notation of JSON lines, and the formats of `--value-format`.

    the bytes                      "value"                       "value_encoding"
    null                           null                          absent
    UTF-8 text                     the text                      absent
    other bytes                    base64                        "base64"
    --value-format json            the JSON, in its own digits   "json"
    … avro, protobuf, confluent-…  an object of the fields       the format's name

Keys have `key` and `key_encoding`; a header has `value` and `value_encoding`. A value that its format cannot show is
text or base64, and `value_error` says why.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import click
import msgspec

from odradek.model import packages_of

WRITTEN_FORMATS: Final = ("text", "json", "base64")
"""Formats that can be written, too."""
SCHEMA_FORMATS: Final = ("avro", "protobuf", "confluent-avro", "confluent-protobuf")
FORMATS: Final = (*WRITTEN_FORMATS, *SCHEMA_FORMATS)


class Shown(NamedTuple):
    """A key or value in a notation that JSON can have."""

    content: str | msgspec.Raw | None
    encoding: str | None = None
    error: str | None = None

    def fields(self, name: str) -> dict[str, Any]:
        """Return the fields of a JSON line for a key or value called `name`."""
        found: dict[str, Any] = {name: self.content}
        if self.encoding is not None:
            found[f"{name}_encoding"] = self.encoding
        if self.error is not None:
            found[f"{name}_error"] = self.error
        return found


Show = Callable[[bytes | None], Shown]


def show_text(data: bytes | None) -> Shown:
    """Return UTF-8 as text, other bytes as base64."""
    if data is None:
        return Shown(None)
    try:
        return Shown(data.decode())
    except UnicodeDecodeError:
        return _show_base64(data)


def _show_base64(data: bytes | None) -> Shown:
    return Shown(None) if data is None else Shown(base64.b64encode(data).decode(), "base64")


def shower(name: str, schema: str | None, *, option: str) -> Show:
    """Return the function that shows bytes in the format `name`; `schema` is `FILE`, or `FILE:MESSAGE` for Protobuf.

    Raises `click.UsageError` for a format without its schema, or a schema without its format.
    """
    if name in WRITTEN_FORMATS:
        if schema is not None:
            raise click.UsageError(f"--{option}-schema is for the formats avro and protobuf, not {name}")
        shows: dict[str, Show] = {"text": show_text, "json": partial(_show, name, _compact), "base64": _show_base64}
        return shows[name]
    if schema is None:
        what = "FILE:MESSAGE, a descriptor file of protoc" if "protobuf" in name else "FILE, an .avsc file"
        raise click.UsageError(f"--{option}-format {name} needs --{option}-schema {what}")
    decode = _decoder(name, schema)
    return partial(_show, name, lambda data: msgspec.json.encode(decode(data), enc_hook=str))


def _show(name: str, convert: Callable[[bytes], bytes], data: bytes | None) -> Shown:
    if data is None:
        return Shown(None)
    try:
        return Shown(msgspec.Raw(convert(data)), name)
    except (ValueError, RecursionError) as error:
        return show_text(data)._replace(error=str(error))


def _compact(data: bytes) -> bytes:
    """Return JSON on one line, with its digits as they are. Raises `ValueError` if it is not JSON."""
    msgspec.json.decode(data)
    return msgspec.json.format(data, indent=-1)


def _decoder(name: str, schema: str) -> Callable[[bytes], object]:
    """Return the decoder of `odradek.values`, whose import is slow. Raises `ConfigurationError`."""
    kind = name.removeprefix("confluent-")
    path, colon, message = schema.rpartition(":") if kind == "protobuf" else (schema, ":", None)
    if not colon:
        raise click.BadParameter(f"{schema!r} is not FILE:MESSAGE, such as orders.desc:shop.Order")
    with packages_of(kind, "Avro and Protobuf values"):
        from odradek.values.decoding import make_decoder, read_schema

        decoder = make_decoder(kind, read_schema(kind, path), message, None if name == kind else "confluent")
    with suppress(ValueError):
        decoder(b"")  # raises for a wrong schema now, not for each record
    return decoder


# ---- reading --------------------------------------------------------------------------------------------------------


def bytes_of_text(name: str, data: bytes) -> bytes:
    """Return the bytes of a value that is written in the format `name`. Raises `ValueError`."""
    if name == "json":
        msgspec.json.decode(data)
    return base64.b64decode(data, validate=True) if name == "base64" else data


def bytes_of_fields(fields: Mapping[str, msgspec.Raw], name: str, unmarked: str) -> bytes | None:
    """Return the bytes of the key or value called `name` of a JSON line; `unmarked` is the format without a mark.

    Raises `ValueError` with the reason.
    """
    mark = fields.get(f"{name}_encoding")
    encoding = unmarked if mark is None else msgspec.json.decode(mark)
    if encoding not in WRITTEN_FORMATS:
        raise ValueError(f"{name}_encoding is {encoding!r}, and only {', '.join(WRITTEN_FORMATS)} can be written")
    raw = bytes(fields.get(name, b"null"))
    content = msgspec.json.decode(raw)
    if encoding == "json" and (mark is not None or content is not None):
        return raw
    if content is None:
        return None
    if not isinstance(content, str):
        reason = f"{name} is neither text nor null; --{name}-format json writes it as JSON"
        raise ValueError(reason)  # noqa: TRY004 - to the caller it is a bad value
    try:
        return bytes_of_text(encoding, content.encode())
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64: {error}") from None
