"""Counters and times of requests for the metrics; used only with `--metrics-listen`.

A request's first four bytes, its API and version, select its counters. Its time begins when its last byte is read
(`Connection.read_at`), and ends when its response is sent.
"""

import struct
from functools import partial
from typing import Final

from odradek.broker.apis import LISTED
from odradek.broker.counters import RequestCounters
from odradek.protocol.api import ApiKey
from odradek.runtime import Clock
from odradek.wire.connection import Connection, Serve
from odradek.wire.reply import LATER, PendingReply, Reply

_HEAD: Final = struct.Struct(">I").unpack_from
_HEAD_BYTES: Final = 4
_IDLE_OVER_S: Final = 10.0
_NO_HEAD: Final = 0xFFFFFFFF
UNKNOWN: Final = ("Unknown", "")
"""The key of the counters that all unknown APIs share, as clients can send any number of them."""


def api_name(api_key: int) -> str:
    """Return the name of an API in Kafka's metrics."""
    return ApiKey(api_key).name.title().replace("_", "")


class RequestMeter:
    """Counts and times the requests that it passes to `serve`. `clock` must be the source of `Connection.read_at`."""

    def __init__(self, serve: Serve, clock: Clock) -> None:
        self._serve = serve
        self._clock = clock.monotonic
        self._busy = clock.busy_s
        self._marks = [(self._clock(), self._busy())] * 2
        self._by_head: dict[int, RequestCounters] = {}
        self.counters: dict[tuple[str, str], RequestCounters] = {}
        """Counters by `(API's name, version)`."""

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        """Serve one frame as `wire.Service` says, and count it unless the reply is `LATER`."""
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
        """Return the share of time that the event loop was idle, over the last 10 to 20 s, longer if called rarely."""
        now, busy = self._clock(), self._busy()
        if now - self._marks[1][0] >= _IDLE_OVER_S:
            self._marks = [self._marks[1], (now, busy)]
        then, busy_then = self._marks[0]
        return 1 - min(max((busy - busy_then) / (now - then), 0.0), 1.0) if now > then else 1.0

    def _named(self, head: int) -> RequestCounters:
        """Return the counters of an API and version, as its first request arrives; unknown ones share `UNKNOWN`."""
        key, version = head >> 16, head & 0xFFFF
        api = LISTED.get(key)
        if api is None or (version not in api.advertised and version not in api.served):
            return self.counters.setdefault(UNKNOWN, RequestCounters())
        name = api_name(key)
        return self._by_head.setdefault(head, self.counters.setdefault((name, str(version)), RequestCounters()))
