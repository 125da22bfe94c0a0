"""Rules of a `Cluster` that answer matching requests with an error or delay them, in all of its brokers' threads."""

import asyncio
import threading
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.apis import APIS
from odradek.broker.serving.error_responses import error_response
from odradek.broker.serving.responses import message_frame
from odradek.model import ErrorCode
from odradek.model.suggestions import similar_names
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_request_header
from odradek.protocol.messages.message_codec import decode_request
from odradek.wire.connection import Connection, Serve
from odradek.wire.reply import LATER, NO_REPLY, PendingReply, Reply

SENTENCE: Final = "a test injected this error"


class Failure(Struct, frozen=True, kw_only=True):
    """A rule: the next `times` client requests for `api` are answered with `error`, by `broker` (None: any)."""

    api: ApiKey
    error: ErrorCode
    times: int
    broker: int | None


class Delay(Struct, frozen=True, kw_only=True):
    """A rule: every request for `api` (None: any) waits `seconds` at `brokers` (None: all)."""

    seconds: float
    api: ApiKey | None
    brokers: frozenset[int] | None


class RequestFaults:
    """The rules. `from_brokers` has the local ports of connections that brokers opened; others are clients'."""

    def __init__(self) -> None:
        self.from_brokers: set[int] = set()
        self._lock = threading.Lock()
        self._failures: tuple[Failure, ...] = ()
        self._delays: tuple[Delay, ...] = ()

    def add(self, rule: Failure | Delay) -> None:
        """Apply a rule from the next request on."""
        with self._lock:
            if isinstance(rule, Delay):
                self._delays = (*self._delays, rule)
            else:
                self._failures = (*self._failures, rule)

    def clear(self) -> None:
        """Remove all rules; requests that are already delayed still wait."""
        with self._lock:
            self._failures, self._delays = (), ()

    def before(self, serve: Serve, broker_id: int) -> Serve:
        """Return a function that applies the rules, and then calls `serve`."""

        def served(connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
            if self._failures or self._delays:
                return self._look(serve, broker_id, connection, frame, alone=alone)
            return serve(connection, frame, alone=alone)

        return served

    def _look(self, serve: Serve, broker_id: int, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        key = int.from_bytes(frame[:2], "big")
        version = int.from_bytes(frame[2:4], "big")
        api = APIS.get(key)
        if api is None or version not in api.served:
            return serve(connection, frame, alone=alone)
        error = None if connection.peer_port in self.from_brokers else self._take_failure(api.key, broker_id)
        if error is not None:
            return _refusal(connection, frame, error)
        seconds = self._delay(api.key, broker_id)
        if not seconds:
            return serve(connection, frame, alone=alone)
        # One request of a connection at a time, so that none overtakes another, as at a slow broker.
        return _Delayed(serve, connection, frame, seconds) if alone else LATER

    def _take_failure(self, api: ApiKey, broker_id: int) -> ErrorCode | None:
        with self._lock:
            for place, rule in enumerate(self._failures):
                if rule.api is api and rule.broker in (None, broker_id):
                    left = () if rule.times == 1 else (replace(rule, times=rule.times - 1),)
                    self._failures = (*self._failures[:place], *left, *self._failures[place + 1 :])
                    return rule.error
        return None

    def _delay(self, api: ApiKey, broker_id: int) -> float:
        return sum(
            rule.seconds
            for rule in self._delays
            if rule.api in (None, api) and (rule.brokers is None or broker_id in rule.brokers)
        )


class _Delayed(PendingReply):
    """The reply to a delayed request; later requests of its connection are served after it."""

    exclusive = True

    def __init__(self, serve: Serve, connection: Connection, frame: memoryview, seconds: float) -> None:
        self._inner: PendingReply | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._serve, serve, connection, frame)

    def _serve(self, serve: Serve, connection: Connection, frame: memoryview) -> None:
        if not connection.is_open:
            return
        reply = serve(connection, frame, alone=True)
        assert reply is not LATER, "it is alone"
        if not isinstance(reply, PendingReply):
            self.complete(reply)
            return
        self._inner = reply
        self.on_answered = reply.on_answered
        if reply.settled:
            self._pass_on(reply)
        else:
            reply.on_settled = self._pass_on

    def _pass_on(self, reply: PendingReply) -> None:
        self.refused = reply.refused
        self.complete(reply.buffers)

    def abandon(self) -> None:
        self._timer.cancel()
        if self._inner is not None:
            self._inner.abandon()

    def force_complete(self) -> None:
        if self._inner is not None:
            self._inner.force_complete()


def _refusal(connection: Connection, frame: memoryview, error: ErrorCode) -> Reply:
    """Return an error response; for a Produce with acks=0, close the connection instead, as Kafka does."""
    header = decode_request_header(frame)
    key, version = ApiKey(header.api_key), header.api_version
    request = decode_request(key, version, bytes(frame[header.body_offset :]))
    if key is ApiKey.PRODUCE and request.acks == 0:
        connection.close(SENTENCE)
        return NO_REPLY
    return message_frame(header, error_response(key, version, request, error, SENTENCE))


def api_named(name: str | ApiKey) -> ApiKey:
    """Return an API by its name in any of Kafka's forms: `Produce`, `FindCoordinator`, `FIND_COORDINATOR`."""
    wanted = name.name if isinstance(name, ApiKey) else str(name)
    served = {key.name.replace("_", "").lower(): key for key in map(ApiKey, APIS)}
    found = served.get(wanted.replace("_", "").lower())
    if found is None:
        raise ValueError(f"there is no API {wanted!r}; there are {', '.join(key.name for key in served.values())}")
    return found


def error_named(error: str | int | ErrorCode) -> ErrorCode:
    """Return an error by its name, in any case, or its number."""
    found = ErrorCode.__members__.get(str(error).lower()) or next((each for each in ErrorCode if each == error), None)
    if not found:  # `none` is 0
        near = similar_names(str(error).lower(), ErrorCode.__members__)
        hint = f"did you mean {near[0].upper()}?" if near else "one is NOT_LEADER_OR_FOLLOWER, which is 6"
        raise ValueError(f"Kafka has no error {error!r}; {hint}")
    return found
