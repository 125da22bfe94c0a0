"""Deserializers of keys and values, applied when records are returned; a failure keeps the position at the record."""

from collections.abc import Callable, Sequence
from typing import Any

from odradek.clients.consumer.errors import RecordDeserializationError
from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.model import ConfigurationError

Deserializer = Callable[[bytes], Any]
"""Returns the key or value for its bytes; null keys and tombstones stay None without a call."""


class Deserializers:
    """The deserializers of one consumer; None keeps bytes. Raises `ConfigurationError` if one is not callable."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        for name, each in (("key_deserializer", key), ("value_deserializer", value)):
            if each is not None and not callable(each):
                raise ConfigurationError(f"{name} is a function of bytes, such as json.loads, not {each!r}")
        self._key = key
        self._value = value

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def __call__(
        self, records: Sequence[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """Return the deserialized records before the first that fails, and that record's error or None."""
        made = []
        for record in records:
            try:
                made.append(self._deserialized(record))
            except RecordDeserializationError as error:
                return made, error
        return made, None

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        origin = "key"
        try:
            if self._key is not None and key is not None:
                key = self._key(key)
            origin = "value"
            if self._value is not None and value is not None:
                value = self._value(value)
        except Exception as error:
            raise RecordDeserializationError(record, origin, error) from error
        return record._replace(key=key, value=value)
