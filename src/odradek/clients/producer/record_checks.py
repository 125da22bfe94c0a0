"""Checks of the arguments of `Producer.send`."""

from typing import Any, Final

from odradek.clients.arguments import whole_number
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.records import Headers, record_size_bound

_BYTES: Final[tuple[type[Any], ...]] = (bytes, bytearray, memoryview)
_LATEST_MS: Final = (1 << 63) - 1


def checked_size(topic: str, key: Any, value: Any, headers: Headers, max_request_size: int) -> int:
    """Return an upper bound of a record's bytes. Raises `TypeError` for a wrong type, `KafkaError` if too large."""
    if not (value is None or isinstance(value, _BYTES)) or not (key is None or isinstance(key, _BYTES)):
        parts = (part for part in (key, value) if not (part is None or isinstance(part, _BYTES)))
        kinds = " and ".join(type(part).__name__ for part in parts)
        raise TypeError(f"keys and values are bytes or None, not {kinds}: encode them, or give a serializer")
    if headers:
        _check_headers(headers)
    size = record_size_bound(key, value, headers)
    if size > max_request_size:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"a record of {size:,} bytes for topic {topic!r} is over max_request_size ({max_request_size:,})",
        )
    return size


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
