"""What a service answers: bytes at once, bytes later, or nothing.

A `PendingReply` is a place kept in the order of replies. It is not a future, because completing it writes to the socket
at once, without another turn of the event loop; on the produce and fetch roads that turn would be most of the cost.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]
"""One whole response frame in pieces, its size included. Empty: the request has no response (produce with acks=0)."""

NO_REPLY: Final[Buffers] = ()


class PendingReply:
    """The answer to one request, to be given once: by `complete`, or by `refuse`, which costs the connection."""

    __slots__ = ("buffers", "exclusive", "on_abandoned", "on_settled", "refused", "request_bytes", "settled")

    def __init__(self, *, exclusive: bool = False, on_abandoned: Callable[[], None] | None = None) -> None:
        self.exclusive = exclusive
        """Whether later requests of the connection wait until this one is answered."""
        self.on_abandoned = on_abandoned
        """Called if the connection is lost first, so that what waits for nobody can be dropped."""
        self.on_settled: Callable[[PendingReply], None] | None = None
        """The connection's: called when the answer is known."""
        self.request_bytes = 0
        """The connection's: the size of the request."""
        self.settled = False
        """Whether the answer is known. Set by `complete` and `refuse`."""
        self.buffers: Buffers = NO_REPLY
        self.refused: str | None = None

    def complete(self, buffers: Buffers) -> None:
        """Answer with `buffers`, as soon as every earlier request is answered."""
        self.buffers = buffers
        self._settle()

    def refuse(self, reason: str) -> None:
        """Close the connection instead; `reason` is for the log."""
        self.refused = reason
        self._settle()

    def _settle(self) -> None:
        assert not self.settled, "a reply is given once"
        self.settled = True
        if self.on_settled is not None:
            self.on_settled(self)


Reply: TypeAlias = Buffers | PendingReply
