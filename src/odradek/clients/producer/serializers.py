"""The functions that turn keys and values into bytes."""

from collections.abc import Callable
from typing import Any

from odradek.model import ConfigurationError, ErrorCode, KafkaError

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
