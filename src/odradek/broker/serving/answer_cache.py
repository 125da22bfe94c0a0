"""Answers that depend on nothing but the request's bytes and the cluster's image: encoded once per image.

Clients ask for Metadata again and again with the same bytes, and encoding it costs more than anything else in it.
"""

from collections.abc import Hashable
from typing import Final

from odradek.metadata.image import ClusterImage

_LONGEST_REQUEST_BYTES: Final = 4096
_MOST_BYTES: Final = 16 * 1024 * 1024
"""More is not kept, so that strange requests can't fill the memory."""

Key = tuple[int, str, Hashable, bytes]
"""A version, a listener's name, what the principal may see (`RequestContext.visibility`), and the request's body."""


class AnswerCache:
    """Bodies of responses, dropped when the image changes."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._bodies: dict[Key, bytes] = {}
        self._bytes = 0

    def get(self, image: ClusterImage, key: Key) -> bytes | None:
        """The body that was put for `key` while `image` was current."""
        return self._bodies.get(key) if image is self._image else None

    def put(self, image: ClusterImage, key: Key, body: bytes) -> None:
        """Keep `body`, if there is room."""
        if image is not self._image:
            self._image, self._bytes = image, 0
            self._bodies.clear()
        size = len(key[-1]) + len(body)
        if len(key[-1]) <= _LONGEST_REQUEST_BYTES and self._bytes + size <= _MOST_BYTES:
            self._bodies[key] = body
            self._bytes += size
