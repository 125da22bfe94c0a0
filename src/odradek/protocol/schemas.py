"""A message's schema by API key and version: kio's class, or one of `controller_messages`; imported when first used."""

from typing import Any

from kio import index

from odradek.protocol.api import CONTROLLER_VERSIONS


def load_request_schema(api_key: int, version: int) -> Any:
    """The class of a request in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import REQUESTS

        return REQUESTS[api_key]
    return index.load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    """The class of a response in a version of `schema_versions`."""
    if version == CONTROLLER_VERSIONS.get(api_key):
        from odradek.protocol.controller_messages import RESPONSES

        return RESPONSES[api_key]
    return index.load_response_schema(api_key, version)
