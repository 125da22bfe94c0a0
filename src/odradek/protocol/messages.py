"""Requests and responses by API key and version: dicts in, kio entities out.

A decoded message is kio's frozen dataclass of that version, so a field that the version lacks is an `AttributeError`:
handlers that serve many versions read it with `optional`. kio gives time spans as `timedelta` (see `milliseconds`).
What compiles codecs is imported with the first of them: it needs half of kio.
"""

import datetime
from functools import cache
from typing import Any, TypeVar

from odradek.protocol.compression import Buffer
from odradek.protocol.primitives import DECODE_ERRORS, Meter, malformed
from odradek.protocol.schemas import (
    Decoder,
    Encoder,
    Message,
    MeteredDecoder,
    load_request_schema,
    load_response_schema,
)

D = TypeVar("D")


@cache
def request_encoder(api_key: int, version: int) -> Encoder:
    """Compiled when first asked for."""
    from odradek.protocol.encoder import compile_encoder

    return compile_encoder(load_request_schema(api_key, version))


@cache
def response_encoder(api_key: int, version: int) -> Encoder:
    """Compiled when first asked for."""
    from odradek.protocol.encoder import compile_encoder

    return compile_encoder(load_response_schema(api_key, version))


@cache
def request_decoder(api_key: int, version: int) -> Decoder:
    """Compiled when first asked for."""
    from odradek.protocol.decoder import compile_decoder

    return compile_decoder(load_request_schema(api_key, version))


@cache
def metered_request_decoder(api_key: int, version: int) -> MeteredDecoder:
    """Compiled when first asked for: what reads the requests of strangers."""
    from odradek.protocol.decoder import compile_metered_decoder

    return compile_metered_decoder(load_request_schema(api_key, version))


@cache
def response_decoder(api_key: int, version: int) -> Decoder:
    """Compiled when first asked for."""
    from odradek.protocol.decoder import compile_decoder

    return compile_decoder(load_response_schema(api_key, version))


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    """The body of a request, without its header."""
    return request_encoder(api_key, version)(message)


def encode_response(api_key: int, version: int, message: Message) -> bytes:
    """The body of a response, without its header."""
    return response_encoder(api_key, version)(message)


def decode_request(api_key: int, version: int, buffer: Buffer, offset: int = 0, *, meter: Meter | None = None) -> Any:
    """The body that starts at `offset`. Raises `MalformedMessageError`, also if `meter` has no room for its entries.

    An entry is an item of an array or a tagged field.
    """
    try:
        if meter is None:
            return request_decoder(api_key, version)(buffer, offset)[0]
        return metered_request_decoder(api_key, version)(buffer, offset, meter)[0]
    except (*DECODE_ERRORS, OverflowError) as error:
        raise malformed("message", error) from error


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int = 0) -> Any:
    """The body that starts at `offset`. Raises `MalformedMessageError`."""
    try:
        return response_decoder(api_key, version)(buffer, offset)[0]
    except (*DECODE_ERRORS, OverflowError) as error:
        raise malformed("message", error) from error


def optional(message: object, field: str, default: D) -> D:
    """A field that only some versions have; `default` where it is absent or null."""
    value = getattr(message, field, None)
    return default if value is None else value


def milliseconds(span: datetime.timedelta) -> int:
    """A kio time span in ms."""
    return round(span.total_seconds() * 1000)
