"""A message's schema by API key and version: kio's class, or one of `controller_messages`, imported at its first use.

`encoder` and `decoder` compile functions of the types here from it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from odradek.model import Buffer
from odradek.model.values import dataclass
from odradek.protocol.api import CONTROLLER_VERSIONS
from odradek.protocol.primitives import Meter

Message = Mapping[str, Any]
"""A message to send, by kio's field names."""
Encoder = Callable[[Message], bytes]
RecordEncoder = Callable[[Any], bytes]
"""The key or value of a record to its bytes, which begin with the type or the version."""
Decoder = Callable[[Buffer, int], tuple[Any, int]]
"""`(buffer, offset)` to `(message, offset after it)`."""
MeteredDecoder = Callable[[Buffer, int, Meter], tuple[Any, int]]
"""A `Decoder` that counts entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The fields of a class that a message has. In a flexible one they are compact and end with tagged fields."""

    version: int | None = None
    """None for a class of one version, which has all its fields."""
    flexible: bool

    def fields(self, entity_type: Any) -> list[dataclasses.Field[Any]]:
        """Return the fields of a struct of the message, in the order of their bytes."""
        return [field for field in dataclasses.fields(entity_type) if self._has(field)]

    def _has(self, field: dataclasses.Field[Any]) -> bool:
        if self.version is None or "versions" not in field.metadata:
            return True
        first, plus, _ = field.metadata["versions"].partition("+")
        return self.version >= int(first) if plus else self.version == int(first)


def load_request_schema(api_key: int, version: int) -> Any:
    """Return the class of a request in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.messages.controller_messages import REQUESTS

        return REQUESTS[api_key]
    from kio import index

    return index.load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    """Return the class of a response in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.messages.controller_messages import RESPONSES

        return RESPONSES[api_key]
    from kio import index

    return index.load_response_schema(api_key, version)
