"""What a service answers: bytes at once, bytes later, nothing, or "ask me again when this connection is quiet".

A `PendingReply` is a place kept in the order of replies. It is not a future, because completing it writes to the socket
at once, without another turn of the event loop; on the produce and fetch roads that turn would be most of the cost.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeAlias

Buffers: TypeAlias = Sequence[bytes | bytearray | memoryview]
"""One whole response frame in pieces, its size included. Empty: the request has no response (produce with acks=0)."""

NO_REPLY: Final[Buffers] = ()


class PendingReply:
    """The answer to one request, to be given once: by `complete`, or by `refuse`, which costs the connection.

    What is here a class's attribute is an instance's default, since there is one of these per request.
    """

    exclusive = False
    """Whether later requests of the connection wait until this one is answered."""
    settled = False
    """Whether the answer is known. Set by `complete` and `refuse`."""
    buffers: Buffers = NO_REPLY
    refused: str | None = None
    decoded_bytes = 0
    """The service's: what the request takes in memory beside its own bytes until it is answered."""
    request_bytes = 0
    """The connection's: the size of the request, and what it takes beside."""
    held_bytes = 0
    """The connection's: the size of an answer that waits for earlier ones."""
    held_since = 0.0
    """The connection's: when it began to, by the group's clock; 0 without one, and for an answer that left at once."""
    on_settled: "Callable[[PendingReply], None] | None" = None
    """The connection's: called when the answer is known."""
    on_answered: "Callable[[PendingReply], None] | None" = None
    """The service's: called when the answer leaves, after all before it."""

    def abandon(self) -> bool:
        """The client went away: drop what waits for nobody else, and say whether that is so. Here it is not."""
        return False

    def complete(self, buffers: Buffers) -> None:
        """Answer with `buffers`, as soon as every earlier request is answered."""
        assert not self.settled, "a reply is given once"
        self.buffers = buffers
        self.settled = True
        if self.on_settled is not None:
            self.on_settled(self)

    def refuse(self, reason: str) -> None:
        """Close the connection instead; `reason` is for the log."""
        self.refused = reason
        self.complete(NO_REPLY)


class Later(Enum):
    """What a service says, while others of the connection are unanswered, to a request that it has to serve alone."""

    LATER = "later"


LATER: Final = Later.LATER

Reply: TypeAlias = Buffers | PendingReply | Later
