"""Checks of the arguments of `Producer.send`, and the functions that turn keys and values into bytes."""

from collections.abc import Callable
from typing import Any, Final

from odradek.clients.arguments import whole_number
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.protocol.batches.records import Headers

_BYTES: Final[tuple[type[Any], ...]] = (bytes, bytearray, memoryview)
_LATEST_MS: Final = (1 << 63) - 1


def checked_parts(key: Any, value: Any, headers: Headers) -> tuple[bytes | None, bytes | None]:
    """Return key and value as immutable bytes. Raises `TypeError` if one of them or a header has a wrong type."""
    if not (value is None or isinstance(value, _BYTES)) or not (key is None or isinstance(key, _BYTES)):
        parts = (part for part in (key, value) if not (part is None or isinstance(part, _BYTES)))
        kinds = " and ".join(type(part).__name__ for part in parts)
        raise TypeError(f"keys and values are bytes or None, not {kinds}: encode them, or give a serializer")
    if headers:
        _check_headers(headers)
    return None if key is None else bytes(key), None if value is None else bytes(value)


def too_large(topic: str, size: int, max_request_size: int) -> KafkaError:
    """Return the error for a record of at most `size` bytes."""
    return KafkaError(
        ErrorCode.message_too_large,
        f"a record of {size:,} bytes for topic {topic!r} is over max_request_size ({max_request_size:,})",
    )


def valid_timestamp(timestamp_ms: int) -> int:
    """Return the timestamp. Raises `KafkaError` INVALID_TIMESTAMP."""
    timestamp = whole_number("timestamp_ms", timestamp_ms)
    if not 0 <= timestamp <= _LATEST_MS:
        raise KafkaError(ErrorCode.invalid_timestamp, f"timestamp_ms is milliseconds since 1970, not {timestamp:,}")
    return timestamp


def _check_headers(headers: Headers) -> None:
    for header in headers:
        match header:
            case (str(), None) | (str(), bytes() | bytearray() | memoryview()):
                continue
        raise TypeError(f"a header is a pair of a str and bytes or None, not {header!r}")


Serializer = Callable[[Any], bytes | None]
"""Returns the bytes of a key or value; it is not called for None, which is sent as null."""


def checked_serializer(name: str, serializer: Serializer | None) -> Serializer | None:
    """Return `serializer`. Raises `ConfigurationError` if it is not a function."""
    if serializer is not None and not callable(serializer):
        raise ConfigurationError(f"{name} is a function that returns bytes, not {serializer!r}")
    return serializer


def serialized(name: str, serializer: Serializer, topic: str, content: Any) -> bytes | None:
    """Return the bytes of `content`. Raises `KafkaError` INVALID_RECORD if the serializer fails."""
    try:
        return serializer(content)
    except Exception as error:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"{name} failed for a record of topic {topic!r}: {type(error).__name__}: {error}",
        ) from error
