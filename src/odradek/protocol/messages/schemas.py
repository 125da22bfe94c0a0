"""Finds a message's schema by API key and version: a class of kio or of ours, imported at its first use.

It also declares the types of the functions that `encoder` and `decoder` compile.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from odradek.model import Buffer
from odradek.protocol.api import CONTROLLER_VERSIONS, NEWER_VERSIONS, ApiKey
from odradek.protocol.primitives import Meter

Message = Mapping[str, Any]
"""A message to encode: values by kio's field names."""
Encoder = Callable[[Message], bytes]
RecordEncoder = Callable[[Any], bytes]
"""Encodes the key or value of a record, with its type or version first."""
Decoder = Callable[[Buffer, int], tuple[Any, int]]
"""A function of `(buffer, offset)` that returns `(message, offset after it)`."""
MeteredDecoder = Callable[[Buffer, int, Meter], tuple[Any, int]]
"""A `Decoder` that counts array items and tagged fields with a `Meter`."""


class Layout(Struct, frozen=True, kw_only=True):
    """Selects the fields of a schema class that a message of this version has."""

    version: int | None = None
    """None for a class of a single version, which has all fields."""
    flexible: bool
    """Whether the message has compact lengths and tagged fields."""

    def fields(self, entity_type: Any) -> list[dataclasses.Field[Any]]:
        """Return the fields of a struct in the message, in the order of their bytes."""
        return [field for field in dataclasses.fields(entity_type) if self._has(field)]

    def _has(self, field: dataclasses.Field[Any]) -> bool:
        if self.version is None or "versions" not in field.metadata:
            return True
        first, plus, _ = field.metadata["versions"].partition("+")
        return self.version >= int(first) if plus else self.version == int(first)


def load_request_schema(api_key: int, version: int) -> Any:
    """Return the class of a request; `version` must be in `schema_versions(api_key)`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.messages.controller_messages import REQUESTS

        return REQUESTS[api_key]
    if version == NEWER_VERSIONS.get(api_key):
        return _newer_schemas(api_key).REQUEST
    from kio import index

    return index.load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    """Return the class of a response; `version` must be in `schema_versions(api_key)`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.messages.controller_messages import RESPONSES

        return RESPONSES[api_key]
    if version == NEWER_VERSIONS.get(api_key):
        return _newer_schemas(api_key).RESPONSE
    from kio import index

    return index.load_response_schema(api_key, version)


def _newer_schemas(api_key: int) -> Any:
    """Return the module with the schemas of a version that kio lacks."""
    return importlib.import_module(f"odradek.protocol.messages.newer.{ApiKey(api_key).name.lower()}")
