"""Typed access to the JSON of the metadata tree's nodes, which other programs may have written."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, TypeGuard

from odradek.model import OdradekError, TopicPartition

_NUMBER: Final = re.compile("-?[0-9]{1,20}")
_PARTITION: Final = re.compile("0|[1-9][0-9]{0,9}")


class BrokenNodeError(OdradekError):
    """The content of the node at `path` is invalid, for `reason`. Such a node is not changed."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the metadata node {path} is broken: {reason}")


def fits(value: object, bits: int) -> TypeGuard[int]:
    """Return whether `value` is a signed integer of at most `bits` bits, as in message fields."""
    return type(value) is int and -1 << (bits - 1) <= value < 1 << (bits - 1)


class Fields:
    """A JSON object with typed access to its fields. Methods raise `BrokenNodeError` for a field of another type."""

    __slots__ = ("_fields", "_path")

    def __init__(self, path: str, data: bytes | dict[str, Any]) -> None:
        self._path = path
        if isinstance(data, bytes):
            try:
                text, data = data, json.loads(data)
                if b"\\ud" in text or b"\\uD" in text:
                    json.dumps(data, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded in a response
            except (ValueError, RecursionError) as error:
                raise BrokenNodeError(path, f"not JSON ({error})") from None
        if not isinstance(data, dict):
            raise BrokenNodeError(path, "not a JSON object")
        self._fields = data

    @property
    def names(self) -> Iterable[str]:
        return self._fields.keys()

    def has(self, name: str) -> bool:
        """Return whether the field `name` exists and is not null."""
        return self._fields.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, bits: int = 32) -> int:
        """Return the integer field `name`; its JSON value may be a string of digits."""
        value = self._fields.get(name, default)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value)
        if not fits(value, bits):
            raise self.broken(name, f"an integer of {bits} bits")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self.broken(name, "a string")
        return value

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._fields.get(name, default)
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self.broken(name, "a list of strings")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the field `name`, a list of integers of 32 bits."""
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(fits(each, 32) for each in value):
            raise self.broken(name, "a list of integers")
        return tuple(value)

    def mapping(self, name: str, *, required: bool = False) -> dict[str, Any]:
        """Return the object field `name`; an empty one if it is missing and not `required`."""
        value = self._fields.get(name, None if required else {})
        if not isinstance(value, dict):
            raise self.broken(name, "an object")
        return value

    def replicas(self, name: str, *, required: bool = False) -> dict[int, tuple[int, ...]]:
        """Return the replicas by partition number; numbers are strings in JSON."""
        mapping = Fields(self._path, self.mapping(name, required=required))
        keys = sorted(mapping._fields, key=lambda key: (len(key), key))
        if not all(_PARTITION.fullmatch(key) and fits(int(key), 32) for key in keys):
            raise self.broken(name, "an object of partitions")
        return {int(key): mapping.integers(key) for key in keys}

    def objects(self, name: str) -> list["Fields"]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise self.broken(name, "a list")
        return [Fields(self._path, each) for each in value]

    def topic_partition(self) -> TopicPartition:
        """Return the partition that the fields `topic` and `partition` name."""
        return TopicPartition(self.text("topic"), self.integer("partition"))

    def broken(self, name: str, kind: str) -> BrokenNodeError:
        return BrokenNodeError(self._path, f"{name} is not {kind}")
