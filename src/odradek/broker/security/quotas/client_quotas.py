"""The quotas of clients, in force: what requests cost, and how long connections are muted (KIP-13, KIP-124, KIP-219).

```
Dispatcher.serve ─▶ begin            a `Charge`, if a quota applies to the client
handler          ─▶ throttle_fetch   Fetch looks at its records first: a throttled response has none
reply is known   ─▶ Charge           records the request's bytes and time; above a limit the response gets the throttle
                                     time, and the connection serves nothing until that has passed
```
Requests between brokers and of authentication are exempt, as in Kafka. A broker without quotas does none of this.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from odradek.broker.apis import Trait, with_trait
from odradek.broker.security.quotas.rates import Rate, TokenBucket
from odradek.config.broker import BrokerConfig
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import RequestHeader
from odradek.runtime import Clock
from odradek.security.quotas import (
    CONNECTION_CREATION,
    CONTROLLER_MUTATION,
    FETCH,
    PRODUCE,
    REQUEST,
    USER_KEYS,
    QuotaEntity,
    SharedBy,
    applicable,
    ip_limit,
    limits_by_key,
)
from odradek.wire.connection import Connection
from odradek.wire.reply import Buffers, PendingReply

if TYPE_CHECKING:
    from odradek.broker.security.context import RequestContext

_EXEMPT: Final = with_trait(Trait.UNCHARGED)
_MOST_CLIENTS: Final = 10_000
"""How many pairs of user and client id are remembered, before idle ones are forgotten."""
_LONGEST_ID: Final = 256
"""Client ids are cut to this length: clients choose them, and many long ones would take too much memory."""
QuotaKind = Literal["produce", "fetch", "request", "mutation"]
"""The fields of `ClientLimits`."""
_LARGEST_INT: Final = 2**31 - 1


class _Limit(Struct, kw_only=True):
    """A limit, and the rate of the clients that share it."""

    limit: float
    rate: Rate
    shared_by: SharedBy
    longest_s: float = math.inf
    """The longest throttle time."""
    throttled_until_s: float = 0.0
    """When the last throttle time of this client ends."""

    def charge(self, value: float, now_s: float) -> float:
        self.rate.record(value, now_s)
        return self.throttled(min(self.rate.throttle_time_s(self.limit, now_s), self.longest_s), now_s)

    def throttled(self, throttle_s: float, now_s: float) -> float:
        """Return the throttle time, and remember it for metrics if it is not 0."""
        if throttle_s:
            self.throttled_until_s = now_s + throttle_s
        return throttle_s


class _MutationLimit(_Limit, kw_only=True):
    bucket: TokenBucket


class ClientLimits(Struct, kw_only=True):
    """The limits that apply to one user and client id."""

    produce: _Limit | None
    fetch: _Limit | None
    request: _Limit | None
    mutation: _MutationLimit | None


class ClientQuotas:
    """The quotas of one broker, and the connections that are muted."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, with_throttle_time: Callable[[RequestHeader, Buffers, int], Buffers]
    ) -> None:
        self.with_throttle_time = with_throttle_time
        self.are_set = False
        """Whether any user or client id has a quota."""
        self.version = 0
        """A number that changes when limits that were returned before must not be used any more."""
        self._clock = clock.monotonic
        self._samples, self._sample_s = config.quota_window_num, float(config.quota_window_size_seconds)
        self._mutation_window = config.controller_quota_window_num, float(config.controller_quota_window_size_seconds)
        self._limits: dict[str, dict[QuotaEntity, float]] = limits_by_key({})
        self._clients: dict[tuple[str, str], ClientLimits | None] = {}
        self._rates: dict[tuple[str, SharedBy], Rate] = {}
        self._buckets: dict[SharedBy, TokenBucket] = {}
        self._muted: dict[Connection, asyncio.TimerHandle] = {}

    def update(self, configs: Mapping[QuotaEntity, Mapping[str, str]]) -> None:
        """Use these quotas from now on. Muted connections are released, and throttled again if they are still fast."""
        self._limits = limits_by_key(
            {
                each._replace(client_id=each.client_id and each.client_id[:_LONGEST_ID]): configs[each]
                for each in configs
            }
        )
        self.are_set = any(self._limits[key] for key in USER_KEYS)
        self._forget_clients()
        for connection in tuple(self._muted):
            self._unmute(connection)
        if not self.are_set:
            self._rates.clear()
            self._buckets.clear()

    def ip_limit(self, ip: str) -> float | None:
        """Return how many connections an IP address may create per second; None: any number."""
        limits = self._limits[CONNECTION_CREATION]
        return ip_limit(limits, ip) if limits else None

    def usage(self, kind: QuotaKind) -> dict[SharedBy, tuple[float, float]]:
        """Return `(rate, rest of the throttle time in ms)` of clients with such a quota and recent requests."""
        found: dict[SharedBy, tuple[float, float]] = {}
        now_s = self._clock()
        for client in self._clients.values():
            limit: _Limit | None = None if client is None else getattr(client, kind)
            if limit is not None:
                rest_ms = max(limit.throttled_until_s - now_s, 0.0) * 1000
                if rest_ms or not limit.rate.is_idle(now_s):
                    _, longest_ms = found.get(limit.shared_by, (0.0, 0.0))
                    found[limit.shared_by] = limit.rate.per_second(now_s), max(rest_ms, longest_ms)
        return found

    # ---- requests -----------------------------------------------------------------------------------------------

    def begin(self, context: "RequestContext", size: int) -> "Charge | None":
        """Return a charge for a request of `size` bytes whose handler is called now; None if no quota applies."""
        if not self.are_set or context.api_key in _EXEMPT:
            return None
        client = self._client(context)
        return None if client is None else self.charge(context, client, size)

    def begin_fetch(self, context: "RequestContext") -> "Charge | None":
        """Return a charge for a consumer's Fetch whose handler is called now; None if no quota applies."""
        client = self._client(context) if self.are_set else None
        return None if client is None else self.charge(context, client, 0)

    def produce_limits(self, context: "RequestContext") -> ClientLimits | None:
        """Return the limits that apply to a client's Produce until `version` changes; None if none does."""
        client = self._client(context)
        return client if client is not None and (client.produce or client.request) else None

    def charge(self, context: "RequestContext", client: ClientLimits, size: int) -> "Charge":
        """Return a charge for a request of `size` bytes that is served now."""
        return Charge(self, context, client, size, self._clock)

    def take_mutations(self, context: "RequestContext", count: int, *, strict_from: int) -> None:
        """Take tokens for the creation or deletion of `count` partitions; a negative number gives them back.

        Raises `KafkaError` THROTTLING_QUOTA_EXCEEDED if the bucket has a debt and the request's version is at least
        `strict_from`. Older clients do not know this error: they are only throttled (KIP-599).
        """
        client = self._client(context) if self.are_set else None
        if client is None or client.mutation is None:
            return
        mutation, limit, bucket = client.mutation, client.mutation.limit, client.mutation.bucket
        session, now_s = context.session, self._clock()
        is_strict = context.api_version >= strict_from
        debt_s = bucket.throttle_time_s(limit, now_s)
        if is_strict and count >= 0 and round(debt_s * 1000):  # a client that waited for whole milliseconds is served
            session.mutation_throttle_s = mutation.throttled(debt_s, now_s)
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded,
                f"{CONTROLLER_MUTATION} of this client is {limit:g} partitions/s; try again in {debt_s:.1f} s",
            )
        bucket.record(count, limit, now_s)
        if not is_strict:
            session.mutation_throttle_s = mutation.throttled(bucket.throttle_time_s(limit, now_s), now_s)

    def _client(self, context: "RequestContext") -> ClientLimits | None:
        """Return the limits of a request's client; None if there are none."""
        name = context.session.principal.name, context.client_id[:_LONGEST_ID]
        if name in self._clients:
            return self._clients[name]
        if len(self._clients) >= _MOST_CLIENTS:
            self._forget_idle()
        found, mutation = applicable(self._limits[CONTROLLER_MUTATION], *name), None
        if found is not None:
            limit, shared_by = found
            bucket = self._buckets.setdefault(shared_by, TokenBucket(*self._mutation_window))
            mutation = _MutationLimit(limit=limit, rate=bucket.rate, shared_by=shared_by, bucket=bucket)
        client = ClientLimits(
            produce=self._limit(PRODUCE, *name),
            fetch=self._limit(FETCH, *name),
            request=self._limit(REQUEST, *name, longest_s=self._sample_s),  # as in Kafka
            mutation=mutation,
        )
        limits = client if any(getattr(client, each) for each in client.__struct_fields__) else None
        self._clients[name] = limits
        return limits

    def _limit(self, key: str, user: str, client_id: str, longest_s: float = math.inf) -> _Limit | None:
        found = applicable(self._limits[key], user, client_id)
        if found is None:
            return None
        limit, shared_by = found
        rate = self._rates.setdefault((key, shared_by), Rate(self._samples, self._sample_s))
        return _Limit(limit=limit, rate=rate, shared_by=shared_by, longest_s=longest_s)

    def _forget_idle(self) -> None:
        now_s = self._clock()
        self._forget_clients()
        self._rates = {each: rate for each, rate in self._rates.items() if not rate.is_idle(now_s)}
        self._buckets = {each: bucket for each, bucket in self._buckets.items() if not bucket.is_idle(now_s)}

    def _forget_clients(self) -> None:
        self._clients.clear()
        self.version += 1

    # ---- muted connections --------------------------------------------------------------------------------------

    @property
    def muted_count(self) -> int:
        return len(self._muted)

    def is_muted(self, connection: Connection) -> bool:
        return connection in self._muted

    def mute(self, connection: Connection, throttle_ms: int) -> None:
        """Serve no request of the connection for this time."""
        loop = asyncio.get_running_loop()
        timer = self._muted.get(connection)
        due_s = loop.time() + throttle_ms / 1000
        if connection.is_open and (timer is None or timer.when() < due_s):
            if timer is not None:
                timer.cancel()
            self._muted[connection] = loop.call_at(due_s, self._unmute, connection)
            connection.hold()

    def forget(self, connection: Connection) -> None:
        timer = self._muted.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _unmute(self, connection: Connection) -> None:
        self.forget(connection)
        connection.release()


class Charge:
    """The bytes and the time of one request, from its handler's call until its reply is known."""

    __slots__ = ("_began_s", "_busy_s", "_client", "_clock", "_context", "_quotas", "_size")

    def __init__(
        self,
        quotas: ClientQuotas,
        context: "RequestContext",
        client: ClientLimits,
        size: int,
        clock: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._context = context
        self._client = client
        self._size = size
        self._clock = clock
        self._busy_s = 0.0
        self._began_s = clock()

    def apply(self, reply: Buffers | PendingReply) -> Buffers | PendingReply:
        """Charge the request when its reply is known; return the reply, which gets the throttle time."""
        self.pause()
        if not isinstance(reply, PendingReply):
            return self._throttled(reply)
        if reply.settled:
            reply.buffers = self._throttled(reply.buffers)
        else:
            reply.amend = self._throttled
        return reply

    def pause(self) -> None:
        """Stop counting the handler's time."""
        self._busy_s += self._clock() - self._began_s

    def resume(self) -> None:
        """Go on counting the handler's time."""
        self._began_s = self._clock()

    @property
    def most_fetch_bytes(self) -> int:
        """How many bytes a response may have so that it is not throttled forever."""
        fetch = self._client.fetch
        return _LARGEST_INT if fetch is None else min(int(fetch.limit * fetch.rate.full_window_s), _LARGEST_INT)

    def throttle_fetch(self, size: int) -> int:
        """Charge a fetch of `size` bytes of records, mute the connection, and return the throttle time in ms.

        If it is not 0, the response must have no records: the bytes are not counted.
        """
        self.pause()
        client, now_s = self._client, self._clock()
        fetch_s = 0.0 if client.fetch is None else client.fetch.charge(size, now_s)
        throttle_ms = self._mute(max(fetch_s, self._request_s(now_s)))
        if throttle_ms and client.fetch is not None:
            client.fetch.rate.record(-size, now_s)
        return throttle_ms

    def _throttled(self, buffers: Buffers) -> Buffers:
        """Charge the request, mute the connection above a limit, and return the response with the throttle time."""
        context, client, now_s = self._context, self._client, self._clock()
        throttle_s, context.session.mutation_throttle_s = context.session.mutation_throttle_s, 0.0
        if client.produce is not None and context.api_key == ApiKey.PRODUCE:
            throttle_s = client.produce.charge(self._size, now_s)
        if buffers:  # a Produce with acks=0 has no response, and its time is not charged, as in Kafka
            throttle_s = max(throttle_s, self._request_s(now_s))
        throttle_ms = self._mute(throttle_s)
        if not throttle_ms:
            return buffers
        return self._quotas.with_throttle_time(context.header, buffers, throttle_ms)

    def _request_s(self, now_s: float) -> float:
        """Charge the handler's time."""
        request = self._client.request
        return 0.0 if request is None else request.charge(self._busy_s * 100, now_s)

    def _mute(self, throttle_s: float) -> int:
        throttle_ms = min(round(throttle_s * 1000), _LARGEST_INT)
        if throttle_ms:
            self._quotas.mute(self._context.session.connection, throttle_ms)
        return throttle_ms
