"""The limit of connections whose clients have not authenticated yet, by a TLS handshake and by SASL."""

import logging
from collections.abc import Callable, Hashable
from typing import Final

from odradek.runtime.rate_limited_log import RateLimitedLog

MOST_PENDING: Final = 512
_log = logging.getLogger("odradek.runtime")


class PendingConnections:
    """The unauthenticated connections of one listener, at most `MOST_PENDING`.

    At the limit, a new one closes the oldest of the address that has the most, so that silent clients keep nobody out:
    neither those of other addresses, nor those of their own that authenticate before as many others connect.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._by_host: dict[str, dict[Hashable, Callable[[], object]]] = {}
        self._count = 0
        self._rate_limited_log = RateLimitedLog(_log)

    def add(self, key: Hashable, host: str, close: Callable[[], object]) -> None:
        """Count the connection `key` until `remove`; `close` ends it."""
        if self._count >= MOST_PENDING:
            self._close_one()
        self._by_host.setdefault(host, {})[key] = close
        self._count += 1

    def remove(self, key: Hashable, host: str) -> None:
        """Count a connection no more, if it was counted: its client has authenticated, or it is closed."""
        of_host = self._by_host.get(host, {})
        if of_host.pop(key, None) is not None:
            self._count -= 1
            if not of_host:
                del self._by_host[host]

    def _close_one(self) -> None:
        host, of_host = max(self._by_host.items(), key=lambda each: len(each[1]))
        key, close = next(iter(of_host.items()))
        self.remove(key, host)
        text = "Closed a connection from %s to %s, because %d others have not authenticated yet"
        self._rate_limited_log.log(None, logging.WARNING, text, host, self._listener, MOST_PENDING)
        close()
