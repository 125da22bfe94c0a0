"""Detects brokers whose process has died, and removes their registrations before their sessions expire (decision 20).

```
            lost                   refused, `_REFUSALS` times
 connected ──────► connects again ───────────────────────────► the registration is deleted
    ▲  ▲    accepted   │ │ no answer, or another error
    │  └───────────────┘ ▼
    └─────────── connects each second; if it is refused, only the session can tell
```
The controller watches all brokers, and the other brokers watch the controller, each by a connection without
requests, on which it logs in where the listener wants that.
A process that was killed closes its connections and refuses new ones at once; one that is stopped or cut off does not.
A broker that lives all the same notices that its registration is gone, is fenced, and registers again. A controller
without a connection to any of several brokers removes none: the fault may be its own.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from odradek.metadata import paths
from odradek.metadata.image import BrokerImage
from odradek.metadata.store import BadVersion, Delete, NoNode, Store
from odradek.model import OdradekError, UnavailableError
from odradek.runtime import Runtime
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity
from odradek.wire.client_connection import open_connection

_REFUSALS: Final = 6
"""Refused connects, in a row, that show that nothing listens."""
_INTERVAL_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
"""The longest pause between connects, and the time in which one must succeed if there is no login."""
_LOGIN_S: Final = 10.0
_REQUEST_TIMEOUT_MS: Final = 10_000
_MOST_RESPONSE_BYTES: Final = 1 << 20
_log = logging.getLogger("odradek.broker")


class DeadBrokerDetector:
    """One broker's detector. It acts once for each connection that it had, so a broken listener costs one election."""

    def __init__(self, store: Store, runtime: Runtime, client_id: str, security: ClientSecurity = NO_SECURITY) -> None:
        self._store = store
        self._client_id = client_id
        self._runtime = runtime
        self._security = security
        self._watched: dict[int, tuple[BrokerImage, asyncio.Task[None]]] = {}
        self._connections = 0

    def watch(self, brokers: Iterable[BrokerImage]) -> None:
        """Watch the registrations `brokers`, and no others."""
        wanted = {broker.broker_id: broker for broker in brokers}
        for broker_id, (broker, task) in tuple(self._watched.items()):
            if wanted.get(broker_id) != broker:
                task.cancel()
                del self._watched[broker_id]
        for broker_id in sorted(wanted.keys() - self._watched.keys()):
            broker = wanted[broker_id]
            task = asyncio.get_running_loop().create_task(self._run(broker), name=f"watching broker {broker_id}")
            self._watched[broker_id] = broker, task

    async def _run(self, broker: BrokerImage) -> None:
        loop = asyncio.get_running_loop()
        refusals: int | None = None
        """Refused connects since a connection was lost; None while only the session can tell."""
        pause_s = _INTERVAL_S
        while refusals is None or refusals < _REFUSALS:
            began_s = loop.time()
            try:
                await self._until_lost(broker)
                refusals = 0
                # A process that ends may accept once more; one with too many connections accepts and closes for long.
                has_lasted = loop.time() - began_s > _LONGEST_PAUSE_S
                pause_s = _INTERVAL_S if has_lasted else min(pause_s * 2, _LONGEST_PAUSE_S)
            except ConnectionRefusedError:
                refusals, pause_s = (None, _LONGEST_PAUSE_S) if refusals is None else (refusals + 1, _INTERVAL_S)
                if not self._connections and len(self._watched) > 1:
                    refusals = None
            except OdradekError:
                refusals, pause_s = None, _LONGEST_PAUSE_S
            await asyncio.sleep(pause_s)
        try:
            await self._unregister(broker)
        except OdradekError as error:
            _log.warning("Failed to remove the registration of broker %d: %s", broker.broker_id, error)

    async def _until_lost(self, broker: BrokerImage) -> None:
        """Connect, and return when the connection is lost. Raises `OSError` or `OdradekError` if there was none."""
        address = broker.endpoints[0]
        limit_s = _LONGEST_PAUSE_S if self._security.login is None else _LOGIN_S
        try:
            connection = await open_connection(
                self._runtime,
                address.host,
                address.port,
                client_id=self._client_id,
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
                setup_timeout_ms=round(limit_s * 1000),
                max_response_bytes=_MOST_RESPONSE_BYTES,
                negotiate=False,
                security=self._security,
            )
        except UnavailableError as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise error.__cause__ from None
            raise
        lost = asyncio.Event()
        connection.on_close(lambda _: lost.set())
        self._connections += 1
        try:
            await lost.wait()
        finally:
            self._connections -= 1
            connection.close()

    async def _unregister(self, broker: BrokerImage) -> None:
        """Delete the registration, and with it `/controller` if that is of the same session."""
        path = paths.broker(broker.broker_id)
        node, controller = await self._store.get_many([path, paths.CONTROLLER])
        if node is None or node.created != broker.epoch:
            return
        operations = [Delete(path=path, version=node.version)]
        if controller is not None and controller.owner == node.owner:
            operations.append(Delete(path=paths.CONTROLLER, version=controller.version))
        with suppress(NoNode, BadVersion):  # another broker was faster
            await self._store.multi(operations)
            _log.warning(
                "Broker %d closed its connections and refuses new ones at %s: removed its registration, so that others "
                "lead its partitions",
                broker.broker_id,
                broker.endpoints[0],
            )
