"""A message's schema by API key and version: kio's class, or one of `controller_messages`; imported when first used.

What is compiled out of a schema is one of the types here; `encoder` and `decoder` do that.
"""

from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.api import CONTROLLER_VERSIONS
from odradek.protocol.compression import Buffer
from odradek.protocol.primitives import Meter

Message = Mapping[str, Any]
"""What is sent, by kio's field names; see `encoder`."""
Encoder = Callable[[Message], bytes]
Decoder = Callable[[Buffer, int], tuple[Any, int]]
"""`(buffer, offset)` to `(message, offset after it)`."""
MeteredDecoder = Callable[[Buffer, int, Meter], tuple[Any, int]]
"""A `Decoder` that counts entries as it goes."""


def load_request_schema(api_key: int, version: int) -> Any:
    """The class of a request in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import REQUESTS

        return REQUESTS[api_key]
    from kio import index

    return index.load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    """The class of a response in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import RESPONSES

        return RESPONSES[api_key]
    from kio import index

    return index.load_response_schema(api_key, version)
