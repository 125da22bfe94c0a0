"""A message's schema by API key and version: kio's class, or one of `controller_messages`, imported at its first use.

`encoder` and `decoder` compile functions of the types here from it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.api import CONTROLLER_VERSIONS
from odradek.protocol.compression import Buffer
from odradek.protocol.primitives import Meter

Message = Mapping[str, Any]
"""A message to send, by kio's field names."""
Encoder = Callable[[Message], bytes]
Decoder = Callable[[Buffer, int], tuple[Any, int]]
"""`(buffer, offset)` to `(message, offset after it)`."""
MeteredDecoder = Callable[[Buffer, int, Meter], tuple[Any, int]]
"""A `Decoder` that counts entries."""


def load_request_schema(api_key: int, version: int) -> Any:
    """Return the class of a request in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import REQUESTS

        return REQUESTS[api_key]
    from kio import index

    return index.load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    """Return the class of a response in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import RESPONSES

        return RESPONSES[api_key]
    from kio import index

    return index.load_response_schema(api_key, version)
