"""Counts and times requests between the connections and the dispatcher; nobody does without `--metrics-listen`.

A request is looked up by its first four bytes, its API and version, and all else is an addition. Its time begins with
the read that brought its last byte (`Connection.read_at`), and ends when its answer leaves in its turn.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.apis import apis
from odradek.broker.dispatch import Dispatcher
from odradek.metrics.counters import RequestCounters
from odradek.protocol.api import ApiKey
from odradek.wire import LATER, Connection, PendingReply, Reply

_HEAD: Final = struct.Struct(">I").unpack_from
_HEAD_BYTES: Final = 4
_NO_HEAD: Final = 0xFFFFFFFF
UNKNOWN: Final = ("Unknown", "")
"""What clients ask for that is not there: one name for all of it, or they could make any number."""


class RequestMeter:
    """Stands in for the dispatcher. `clock` gives seconds, and is the one that `read_at` comes from."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float]) -> None:
        self._serve = dispatcher.serve
        self._clock = clock
        self._by_head: dict[int, RequestCounters] = {}
        self.counters: dict[tuple[str, str], RequestCounters] = {}
        """By `(API's name, version)`."""

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        """See `wire.Service`. A request that has to wait is counted when its turn has come."""
        clock = self._clock
        began = clock()
        reply = self._serve(connection, frame, alone=alone)
        if reply is LATER:
            return reply
        size, read_at = len(frame), connection.read_at
        head: int = _HEAD(frame)[0] if size >= _HEAD_BYTES else _NO_HEAD
        counters = self._by_head.get(head) or self._named(head)
        counters.served(size, (began - read_at) * 1000)
        if isinstance(reply, PendingReply):
            reply.on_answered = partial(self._answered, counters, read_at)
        else:
            counters.answered(sum(map(len, reply)), (clock() - read_at) * 1000)
        return reply

    def _answered(self, counters: RequestCounters, read_at: float, reply: PendingReply) -> None:
        counters.answered(sum(map(len, reply.buffers)), (self._clock() - read_at) * 1000)

    def _named(self, head: int) -> RequestCounters:
        """The counters of an API and version that were not asked for before."""
        key, version = head >> 16, head & 0xFFFF
        api = apis().get(key)
        if api is None or version not in api.advertised:
            return self.counters.setdefault(UNKNOWN, RequestCounters())
        name = ApiKey(key).name.title().replace("_", "")
        return self._by_head.setdefault(head, self.counters.setdefault((name, str(version)), RequestCounters()))
