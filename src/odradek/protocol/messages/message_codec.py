"""Encodes and decodes a request or response by API key and version, with codecs compiled from its schema.

A decoded message is kio's frozen dataclass of that version. `optional` reads a field that some versions lack, and
`milliseconds` converts kio's `timedelta`. The compilers are imported at the first use, because they need half of kio.
"""

import datetime
from functools import cache
from typing import Any, TypeVar

from odradek.model import Buffer
from odradek.protocol.messages.schemas import (
    Decoder,
    Encoder,
    Message,
    MeteredDecoder,
    load_request_schema,
    load_response_schema,
)
from odradek.protocol.primitives import DECODE_ERRORS, Meter, malformed

D = TypeVar("D")


@cache
def request_encoder(api_key: int, version: int) -> Encoder:
    """Return the encoder, compiled once."""
    from odradek.protocol.messages.encoder import compile_encoder

    return compile_encoder(load_request_schema(api_key, version))


@cache
def response_encoder(api_key: int, version: int) -> Encoder:
    """Return the encoder, compiled once."""
    from odradek.protocol.messages.encoder import compile_encoder

    return compile_encoder(load_response_schema(api_key, version))


@cache
def request_decoder(api_key: int, version: int) -> Decoder:
    """Return the decoder, compiled once."""
    from odradek.protocol.messages.decoder import compile_decoder

    return compile_decoder(load_request_schema(api_key, version))


@cache
def metered_request_decoder(api_key: int, version: int) -> MeteredDecoder:
    """Return the decoder for requests from clients, which limits their entries; compiled once."""
    from odradek.protocol.messages.decoder import compile_metered_decoder

    return compile_metered_decoder(load_request_schema(api_key, version))


@cache
def response_decoder(api_key: int, version: int) -> Decoder:
    """Return the decoder, compiled once."""
    from odradek.protocol.messages.decoder import compile_decoder

    return compile_decoder(load_response_schema(api_key, version))


def encode_request(api_key: int, version: int, message: Message) -> bytes:
    return request_encoder(api_key, version)(message)


def encode_response(api_key: int, version: int, message: Message) -> bytes:
    return response_encoder(api_key, version)(message)


def decode_request(api_key: int, version: int, buffer: Buffer, offset: int = 0, *, meter: Meter | None = None) -> Any:
    """Decode the request body at `offset`.

    Raises `MalformedMessageError`, also if the message has more array items and tagged fields than `meter` allows.
    """
    try:
        if meter is None:
            return request_decoder(api_key, version)(buffer, offset)[0]
        return metered_request_decoder(api_key, version)(buffer, offset, meter)[0]
    except (*DECODE_ERRORS, OverflowError) as error:
        raise malformed("message", error) from error


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int = 0) -> Any:
    """Decode the response body at `offset`. Raises `MalformedMessageError`."""
    try:
        return response_decoder(api_key, version)(buffer, offset)[0]
    except (*DECODE_ERRORS, OverflowError) as error:
        raise malformed("message", error) from error


def optional(message: object, field: str, default: D) -> D:
    """Return a field that only some versions have; `default` if it is absent or null."""
    value = getattr(message, field, None)
    return default if value is None else value


def milliseconds(span: datetime.timedelta) -> int:
    """Return a time span of kio in ms."""
    return round(span.total_seconds() * 1000)
