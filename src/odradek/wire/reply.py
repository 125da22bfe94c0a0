"""The replies of a service: bytes, a `PendingReply` for later, or `LATER`.

A `PendingReply` keeps a place in the order of replies. It is not a future: completing it writes to the socket at once,
without another iteration of the event loop, which would be most of the cost of a produce or a fetch.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeAlias

Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]
"""One response frame in pieces, including its size. Empty: the request has no response (produce with acks=0)."""

NO_REPLY: Final[Buffers] = ()


class PendingReply:
    """The reply to one request, given once: `complete` sends it, `refuse` closes the connection.

    Class attributes are the defaults of instance attributes, which makes instances cheap.
    """

    exclusive = False
    """Whether later requests of the connection wait until this one is answered."""
    settled = False
    """Whether `complete` or `refuse` was called."""
    buffers: Buffers = NO_REPLY
    refused: str | None = None
    decoded_bytes = 0
    """Set by the service: the memory that the request takes beside its own bytes until it is answered."""
    request_bytes = 0
    """Set by the connection: the size of the request plus `decoded_bytes`."""
    held_bytes = 0
    """Set by the connection: the size of a reply that waits for earlier ones."""
    held_since = 0.0
    """Set by the connection: when the reply began to wait for earlier ones, by the group's clock; 0 if it did not."""
    on_settled: "Callable[[PendingReply], None] | None" = None
    """Set by the connection; called when the reply is known."""
    amend: "Callable[[Buffers], Buffers] | None" = None
    """Set by the service; returns what to send instead of the buffers that `complete` gets."""
    on_answered: "Callable[[PendingReply], None] | None" = None
    """Set by the service; called when the reply is sent, after all earlier ones."""

    def abandon(self) -> None:
        """Stop work that only this client, which has disconnected, needs. No reply follows."""

    def force_complete(self) -> None:
        """Complete now if the reply is a long poll: the client sends no more requests."""

    def complete(self, buffers: Buffers) -> None:
        """Reply with `buffers` as soon as all earlier requests are answered."""
        assert not self.settled, "a reply is given once"
        self.buffers = buffers if self.amend is None else self.amend(buffers)
        self.settled = True
        if self.on_settled is not None:
            self.on_settled(self)

    def refuse(self, reason: str) -> None:
        """Close the connection instead of replying, and log `reason`."""
        self.refused = reason
        self.complete(NO_REPLY)


class Later(Enum):
    """The type of `LATER`: the service cannot serve the request yet (`Service.serve`)."""

    LATER = "later"


LATER: Final = Later.LATER

Reply: TypeAlias = Buffers | PendingReply | Later
