"""Counts and times requests between the connections and the dispatcher; nobody does without `--metrics-listen`.

A request is looked up by its first four bytes, its API and version, and all else is an addition. Its time begins with
the read that brought its last byte (`Connection.read_at`), and ends when its answer leaves in its turn.
"""

import struct
from functools import partial
from typing import Final

from odradek.broker.serving.apis import apis
from odradek.metrics.counters import RequestCounters
from odradek.protocol.api import ApiKey
from odradek.runtime import Clock
from odradek.wire import LATER, Connection, PendingReply, Reply, Serve

_HEAD: Final = struct.Struct(">I").unpack_from
_HEAD_BYTES: Final = 4
_IDLE_OVER_S: Final = 10.0
_NO_HEAD: Final = 0xFFFFFFFF
UNKNOWN: Final = ("Unknown", "")
"""What clients ask for that is not there: one name for all of it, or they could make any number."""


def api_name(api_key: int) -> str:
    """An API as Kafka's metrics call it."""
    return ApiKey(api_key).name.title().replace("_", "")


class RequestMeter:
    """Stands before `serve`, the dispatcher's. `clock` is the one that `read_at` comes from."""

    def __init__(self, serve: Serve, clock: Clock) -> None:
        self._serve = serve
        self._clock = clock.monotonic
        self._busy = clock.busy_s
        self._marks = [(self._clock(), self._busy())] * 2
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
        ended = clock()
        size, read_at = len(frame), connection.read_at
        head: int = _HEAD(frame)[0] if size >= _HEAD_BYTES else _NO_HEAD
        counters = self._by_head.get(head) or self._named(head)
        counters.served(size, (began - read_at) * 1000, (ended - began) * 1000)
        if isinstance(reply, PendingReply):
            reply.on_answered = partial(self._answered, counters, read_at, ended)
        else:
            counters.answered(sum(map(len, reply)), (ended - read_at) * 1000)
        return reply

    def _answered(self, counters: RequestCounters, read_at: float, ended: float, reply: PendingReply) -> None:
        now = self._clock()
        known_at = reply.held_since or now
        counters.awaited(max(known_at - ended, 0.0) * 1000, (now - known_at) * 1000)
        counters.answered(sum(map(len, reply.buffers)), (now - read_at) * 1000)

    def idle_ratio(self) -> float:
        """The share of time that the calling thread, the loop's, had nothing to do: since 10 s ago at the latest."""
        now, busy = self._clock(), self._busy()
        if now - self._marks[1][0] >= _IDLE_OVER_S:
            self._marks = [self._marks[1], (now, busy)]
        then, busy_then = self._marks[0]
        return 1 - min(max((busy - busy_then) / (now - then), 0.0), 1.0) if now > then else 1.0

    def _named(self, head: int) -> RequestCounters:
        """The counters of an API and version that were not asked for before."""
        key, version = head >> 16, head & 0xFFFF
        api = apis().get(key)
        if api is None or (version not in api.advertised and version not in api.served):
            return self.counters.setdefault(UNKNOWN, RequestCounters())
        name = api_name(key)
        return self._by_head.setdefault(head, self.counters.setdefault((name, str(version)), RequestCounters()))
