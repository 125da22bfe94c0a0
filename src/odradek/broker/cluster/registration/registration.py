"""A broker's registration in the tree: an ephemeral node while the broker is alive, and a permanent one.

A killed broker stays registered until its session expires or another broker removes it (`dead_brokers`). If a broker
starts with the same id, address and port, it waits for that; with another address it fails.

The permanent node `/brokers/registrations/{id}` allows topics to be placed on a broker that is away for a while, as in
KRaft. An operator removes it with `unregister` when a broker is gone for good.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress, parse_protocol_map
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import BrokerNode
from odradek.metadata.store import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Store,
)
from odradek.model import ErrorCode, KafkaError, PreconditionError, address_text
from odradek.runtime import Clock

T = TypeVar("T")
Prepare = Callable[[float], Awaitable[None]]
"""Awaited before a registration. The argument is the time in seconds after which a dead session has surely expired."""
_SESSIONS_WAITED_FOR: Final = 2
"""The wait for an old session, in session time-outs: a server may have granted it a longer time-out."""
_MOST_SESSIONS: Final = 5
"""Limit of attempts at one piece of work, if a session expires each time."""
_MOST_ATTEMPTS: Final = 5
"""Limit of attempts to write a registration: a concurrent `unregister` makes an attempt fail."""
_log = logging.getLogger("odradek.broker")


async def prepare_nothing(_patience_s: float) -> None:
    """Do nothing: the default `prepare`."""


async def in_live_session(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, which must be idempotent; repeat it, up to four times, if the session expires meanwhile."""
    for _ in range(_MOST_SESSIONS - 1):
        with suppress(SessionExpired):
            return await work()
        _log.warning("the session with the metadata tree expired; trying again with a new one")
    return await work()


async def unregister(store: Store, broker_id: int) -> None:
    """Remove the registration of a broker that is away: it gets no new replicas, and keeps those it has.

    The notes of replicas that it has to delete (`paths.DELETED_REPLICAS`) are removed too. Raises `KafkaError`
    BROKER_ID_NOT_REGISTERED, INVALID_REQUEST for a broker that is alive, or REQUEST_TIMED_OUT after repeated conflicts.
    """
    lasting = paths.broker_registration(broker_id)
    for _ in range(_MOST_ATTEMPTS):
        known = await store.get(lasting)
        if await store.get(paths.broker(broker_id)) is not None:
            message = f"broker {broker_id} is alive, and would register again: stop it, then unregister it"
            raise KafkaError(ErrorCode.invalid_request, message)
        if known is None:
            raise KafkaError(ErrorCode.broker_id_not_registered, f"Broker ID {broker_id} is not currently registered")
        names = await store.children(paths.DELETED_REPLICAS)
        found = zip(names, map(paths.parse_deleted_replica, names), strict=True)
        notes = [
            Delete(path=paths.child(paths.DELETED_REPLICAS, name))
            for name, note in found
            if note and note.broker == broker_id
        ]
        # A broker that registers meanwhile writes the node, which then has another version.
        with suppress(BadVersion, NoNode):
            await store.multi([Delete(path=lasting, version=known.version), *notes])
            _log.info("broker %d is no longer registered", broker_id)
            return
    raise KafkaError(ErrorCode.request_timed_out, f"broker {broker_id} registers again and again")


class _TakenError(PreconditionError):
    """Another session has registered this broker id, with `endpoints` (empty if they cannot be decoded)."""

    def __init__(self, broker_id: int, endpoints: tuple[ListenerAddress, ...]) -> None:
        self.endpoints = endpoints
        where = f" by the broker at {address_text(*endpoints[0][1:])}" if endpoints else ""
        super().__init__(f"the broker id {broker_id} is taken{where}")


Endpoints = Callable[[], Sequence[ListenerAddress]]


class Registration:
    """The registration of the broker `broker_id`; `endpoints` is called when it registers."""

    def __init__(self, store: Store, broker_id: int, endpoints: Endpoints, config: BrokerConfig, clock: Clock) -> None:
        self._store = store
        self._broker_id = broker_id
        self._path = paths.broker(broker_id)
        self._endpoints = endpoints
        self._config = config
        self._clock = clock

    async def register(self) -> None:
        """Register in this session; replace a node of this session that cannot be decoded.

        Raises `PreconditionError` if another broker has this id.
        """
        protocols = parse_protocol_map(self._config.listener_security_protocol_map)
        endpoints = tuple(self._endpoints())
        node = BrokerNode(
            endpoints=endpoints,
            timestamp_ms=self._clock.now_ms(),
            rack=self._config.broker_rack,
            protocols={each.name: protocols[each.name].value for each in endpoints},
        )
        try:
            await self._create(node.encode())
        except NodeExists as error:
            if error.path != self._path:
                raise
            there = await self._store.get(self._path)
            if there is not None and there.owner != self._store.session_id:
                raise _TakenError(self._broker_id, self._endpoints_of(there)) from None
            if there is not None and not self._endpoints_of(there):
                # A new node instead of new data: a controller watches the children, but not the data of a broken node.
                mended = Create(path=self._path, data=node.encode(), ephemeral=True)
                with suppress(NoNode, BadVersion):
                    await self._store.multi([Delete(path=self._path, version=there.version), mended])

    async def _create(self, data: bytes) -> None:
        """Create the ephemeral node and write the permanent one, in one transaction."""
        lasting = paths.broker_registration(self._broker_id)
        for attempt in range(_MOST_ATTEMPTS):
            known = await self._store.get(lasting)
            stays = Create(path=lasting, data=data) if known is None else SetData(path=lasting, data=data)
            try:
                await self._store.multi([Create(path=self._path, data=data, ephemeral=True), stays])
                return
            except (NodeExists, NoNode) as error:
                # The broker may have been unregistered meanwhile, or have registered in a session that is over.
                if error.path == self._path or attempt == _MOST_ATTEMPTS - 1:
                    raise

    async def register_first(self, session_timeout_ms: int, *, prepare: Prepare) -> None:
        """Register a starting broker, after the session of its former process has expired.

        `prepare` is awaited when the id is free, before the registration; again, if another broker took the id
        meanwhile. Raises `PreconditionError` if another broker has the id, or the former session does not expire.
        """
        timeout_s = _SESSIONS_WAITED_FOR * session_timeout_ms / 1000
        while True:
            await in_live_session(lambda: self._until_free(timeout_s))
            await prepare(timeout_s)
            with suppress(_TakenError):
                await in_live_session(self.register)
                return

    async def check_id(self) -> PreconditionError | None:
        """Return None if the id is free, and an error if a former process of this broker may still have it.

        Raises the error if a broker at another address has the id.
        """
        node = await self._store.get(self._path)
        if node is None or node.owner == self._store.session_id:
            return None
        taken = _TakenError(self._broker_id, self._endpoints_of(node))
        if taken.endpoints != tuple(self._endpoints()):
            raise taken
        return taken

    async def _until_free(self, timeout_s: float) -> None:
        gone = asyncio.Event()
        watch = self._store.watch_data(self._path, gone.set)
        try:
            while (taken := await self.check_id()) is not None:
                _log.warning(
                    "Broker id %d is still registered; waiting up to %.0f s for the old session to expire",
                    self._broker_id,
                    timeout_s,
                )
                try:
                    async with asyncio.timeout(timeout_s):
                        await gone.wait()
                except TimeoutError:
                    raise taken from None
                gone.clear()
        finally:
            watch.cancel()

    def _endpoints_of(self, node: Node) -> tuple[ListenerAddress, ...]:
        with suppress(BrokenNodeError):
            return BrokerNode.decode(self._path, node.data).endpoints
        return ()
