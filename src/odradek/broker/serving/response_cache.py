"""A cache of encoded responses that depend only on the request, its listener, the principal and the cluster's image.

Clients repeat Metadata requests with the same bytes, and encoding is the largest part of their cost.
"""

from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple

from odradek.metadata.image import ClusterImage

_LONGEST_REQUEST_BYTES: Final = 4096
MOST_CACHED_BYTES: Final = 16 * 1024 * 1024
"""The limit of the cache's memory."""

Key = tuple[int, str, Hashable, bytes]
"""A version, a listener's name, what the principal may see (`RequestContext.visibility`), and the request's body."""


class CachedResponse(NamedTuple):
    """The body of a response, and how often it has which error codes other than 0."""

    body: bytes
    errors: Mapping[int, int]


class ResponseCache:
    """The responses for the current image; a new image empties the cache."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._responses: dict[Key, CachedResponse] = {}
        self._bytes = 0

    def get(self, image: ClusterImage, key: Key) -> CachedResponse | None:
        """Return the response that was stored for `key` and this image, or None."""
        return self._responses.get(key) if image is self._image else None

    def put(self, image: ClusterImage, key: Key, response: CachedResponse) -> None:
        """Store `response`, unless the request is too long or the cache is full."""
        if image is not self._image:
            self._image, self._bytes = image, 0
            self._responses.clear()
        size = len(key[-1]) + len(response.body)
        if len(key[-1]) <= _LONGEST_REQUEST_BYTES and self._bytes + size <= MOST_CACHED_BYTES:
            self._responses[key] = response
            self._bytes += size
