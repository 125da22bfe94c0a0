"""A broker's registration in the tree, by which the cluster knows that it is alive.

A broker that was killed is registered until its session ends, which ZooKeeper finds out by time alone. Whoever starts
it again has the same address, and its port: so the one who is registered is gone, and need only be waited for.

What a broker registered stays in `/brokers/registrations/{id}` when it goes, so that topics can be placed on a broker
that is away for a while, as in KRaft. An operator who removes a broker for good has it forgotten (`unregister`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from odradek.config import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.nodes import BrokenNodeError, BrokerNode
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
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.runtime import Clock

T = TypeVar("T")
Prepare = Callable[[float], Awaitable[None]]
"""What a broker does last before it registers, with the seconds after which a session that ended is surely over."""
_SESSIONS_WAITED_FOR: Final = 2
"""How many session time-outs: a server counts in ticks, and may have granted the one before more than was asked for."""
_MOST_SESSIONS: Final = 5
"""How many sessions may expire under one piece of work, before whoever reads the log is told that none lasts."""
_MOST_ATTEMPTS: Final = 5
"""A write of a registration fails when an operator unregisters the broker at the same moment."""
_log = logging.getLogger("odradek.broker")


async def prepare_nothing(_patience_s: float) -> None:
    """For a broker of whose logs the tree says nothing that may not be true."""


async def in_live_session(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, which may be done twice, again with the next session when one expires under it."""
    for _ in range(_MOST_SESSIONS - 1):
        with suppress(SessionExpired):
            return await work()
        _log.warning("the session with the metadata tree expired; trying again with a new one")
    return await work()


async def unregister(store: Store, broker_id: int) -> None:
    """Forget a broker that is away: nothing is placed on it any more. What is placed on it stays so.

    Raises `KafkaError` BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST for a broker that is alive.
    """
    lasting = paths.broker_registration(broker_id)
    for _ in range(_MOST_ATTEMPTS):
        known = await store.get(lasting)
        if await store.get(paths.broker(broker_id)) is not None:
            message = f"broker {broker_id} is alive, and would register again: stop it, then unregister it"
            raise KafkaError(ErrorCode.invalid_request, message)
        if known is None:
            raise KafkaError(ErrorCode.broker_id_not_registered, f"broker {broker_id} is not registered")
        # One that registers meanwhile writes the node, which has another version then.
        with suppress(BadVersion, NoNode):
            await store.delete(lasting, known.version)
            _log.info("broker %d is no longer registered", broker_id)
            return
    raise KafkaError(ErrorCode.request_timed_out, f"broker {broker_id} registers again and again")


class _TakenError(ConfigurationError):
    """Another session holds the registration; `endpoints` are its broker's, empty if they can't be read."""

    def __init__(self, broker_id: int, endpoints: tuple[ListenerAddress, ...]) -> None:
        self.endpoints = endpoints
        where = f" by the broker at {endpoints[0].host}:{endpoints[0].port}" if endpoints else ""
        super().__init__(f"the broker id {broker_id} is taken{where}")


class Registration:
    """That of the broker `broker_id` at `endpoints`."""

    def __init__(
        self, store: Store, broker_id: int, endpoints: tuple[ListenerAddress, ...], rack: str | None, clock: Clock
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._path = paths.broker(broker_id)
        self._endpoints = endpoints
        self._rack = rack
        self._clock = clock

    async def register(self) -> None:
        """Be registered by this session, also where somebody has spoilt its node.

        Raises `ConfigurationError` if another broker has this id.
        """
        node = BrokerNode(endpoints=self._endpoints, timestamp_ms=self._clock.now_ms(), rack=self._rack)
        try:
            await self._create(node.encode())
        except NodeExists as error:
            if error.path != self._path:
                raise
            there = await self._store.get(self._path)
            if there is not None and there.owner != self._store.session_id:
                raise _TakenError(self._broker_id, self._endpoints_of(there)) from None
            if there is not None and not self._endpoints_of(there):
                # Not by `set`: a controller that has read the spoilt node watches who comes and goes, and no data.
                mended = Create(path=self._path, data=node.encode(), ephemeral=True)
                with suppress(NoNode, BadVersion):
                    await self._store.multi([Delete(path=self._path, version=there.version), mended])

    async def _create(self, data: bytes) -> None:
        """Create the ephemeral node and write the one that stays, in one transaction."""
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
        """`register`, for a broker that starts: its own life before this one is waited for.

        `prepare` is awaited when nobody has this id, before this one has; twice, if somebody else had it meanwhile.
        """
        patience_s = _SESSIONS_WAITED_FOR * session_timeout_ms / 1000
        while True:
            await in_live_session(lambda: self._until_free(patience_s))
            await prepare(patience_s)
            with suppress(_TakenError):
                await in_live_session(self.register)
                return

    async def _until_free(self, patience_s: float) -> None:
        gone = asyncio.Event()
        watch = self._store.watch_data(self._path, gone.set)
        try:
            while (node := await self._store.get(self._path)) is not None and node.owner != self._store.session_id:
                taken = _TakenError(self._broker_id, self._endpoints_of(node))
                if taken.endpoints != self._endpoints:
                    raise taken
                _log.warning(
                    "broker %d is still registered, as after a crash: waiting up to %.0f s for that session to end",
                    self._broker_id,
                    patience_s,
                )
                try:
                    async with asyncio.timeout(patience_s):
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
