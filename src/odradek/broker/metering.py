"""Counts and times requests between the connections and the dispatcher; nobody does without `--metrics-listen`.

A request is looked up by its first four bytes, its API and version, and all else is an addition. Its time begins with
the read that brought its last byte (`Connection.read_at`), and ends when its answer leaves in its turn.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from odradek.broker.apis import apis
from odradek.broker.dispatch import Dispatcher
from odradek.metrics.counters import RequestCounters
from odradek.protocol.api import ApiKey
from odradek.wire import LATER, Connection, PendingReply, Reply

UNKNOWN: Final = ("Unknown", "")
"""What clients ask for that is not there: one name for all of it, or they could make any number."""


class RequestMeter:
    """Stands in for the dispatcher. `clock` gives seconds, and is the one that `read_at` comes from."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float]) -> None:
        self._serve = dispatcher.serve
        self._clock = clock
        self._by_head: dict[bytes, RequestCounters] = {}
        self.counters: dict[tuple[str, str], RequestCounters] = {}
        """By `(API's name, version)`."""

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        """See `wire.Service`. A request that has to wait is counted when its turn has come."""
        began = self._clock()
        reply = self._serve(connection, frame, alone=alone)
        if reply is LATER:
            return reply
        head, read_at = bytes(frame[:4]), connection.read_at
        counters = self._by_head.get(head) or self._named(head)
        counters.requests += 1
        counters.request_bytes += len(frame)
        counters.queue_time.observe((began - read_at) * 1000)
        if isinstance(reply, PendingReply):
            reply.on_answered = partial(self._answered, counters, read_at)
        else:
            self._count_answer(counters, read_at, reply)
        return reply

    def _answered(self, counters: RequestCounters, read_at: float, reply: PendingReply) -> None:
        self._count_answer(counters, read_at, reply.buffers)

    def _count_answer(
        self, counters: RequestCounters, read_at: float, buffers: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        for buffer in buffers:
            counters.response_bytes += len(buffer)
        counters.total_time.observe((self._clock() - read_at) * 1000)

    def _named(self, head: bytes) -> RequestCounters:
        """The counters of an API and version that were not asked for before."""
        key, version = int.from_bytes(head[:2], "big", signed=True), int.from_bytes(head[2:], "big", signed=True)
        api = apis().get(key)
        if len(head) < 4 or api is None or version not in api.advertised:
            return self.counters.setdefault(UNKNOWN, RequestCounters())
        name = ApiKey(key).name.title().replace("_", "")
        return self._by_head.setdefault(head, self.counters.setdefault((name, str(version)), RequestCounters()))
