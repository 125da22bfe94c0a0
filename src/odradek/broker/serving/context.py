"""Who asks, and how: what a handler knows of a request beside its body."""

from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.model.values import dataclass
from odradek.protocol.headers import RequestHeader
from odradek.protocol.primitives import Meter
from odradek.security import ANONYMOUS, Principal
from odradek.wire import Connection, Reply

_ENTRY_BYTES: Final = 1024
"""What an item of an array takes about, decoded, worked on and answered, however few bytes it came in."""
_USUAL_ENTRIES: Final = 16
"""Requests of so few cost little more than their connection does, and most have no more."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One connection's: where it came in, and who it is."""

    connection: Connection
    listener: str
    client_host: str
    principal: Principal = ANONYMOUS
    client_software: str = ""
    """Name and version, if the client said so in ApiVersions (KIP-511)."""
    shortcut: Callable[[memoryview], Reply | None] | None = None
    """Asked before anything is decoded: a handler that knows this connection's requests by their first bytes."""


class RequestContext(NamedTuple):
    """One request's header, on its connection's session."""

    header: RequestHeader
    session: Session

    @property
    def api_version(self) -> int:
        """The version that request and response are written in."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """What the client calls itself; empty if it doesn't say."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.session.client_host

    @property
    def listener(self) -> str:
        """The name of the listener that the request came through."""
        return self.session.listener

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.session.principal


def decoded_bytes(meter: Meter) -> int:
    """What the request that `meter` counted takes while it waits for its answer (`PendingReply.decoded_bytes`)."""
    return max(meter.taken - _USUAL_ENTRIES, 0) * _ENTRY_BYTES
