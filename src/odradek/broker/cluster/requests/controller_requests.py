"""Requests of this broker to the controller, which fail when another controller is elected.

A controller that hangs, or whose network is down, neither responds nor closes its connections; when another one is
elected, the requests fail, so that they can be sent to it. Each API has its own connection, because the controller
answers CreateTopics only when the other brokers know the topics.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.metadata_cache import MetadataCache
from odradek.metadata.image import NO_CONTROLLER, ClusterImage, MetadataDelta
from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import Message
from odradek.wire.client_connection import ClientConnection

ControllerT_co = TypeVar("ControllerT_co", covariant=True)


class ControllerRequests(Generic[ControllerT_co]):
    """One broker's requests. `local_controller` returns the controller if this broker is elected, else None."""

    def __init__(
        self,
        metadata: MetadataCache,
        connections: BrokerConnections,
        *,
        local_controller: Callable[[], ControllerT_co | None],
    ) -> None:
        self._local_controller = local_controller
        self._metadata = metadata
        self._connections = connections
        self._changed = asyncio.Event()
        self._purposes: dict[str, None] = {}
        """An ordered set of the purposes of connections to the controller."""

    def local_controller(self) -> ControllerT_co | None:
        return self._local_controller()

    async def send(self, api_key: ApiKey, message: Message) -> Any:
        """Send a request to the controller on another broker, and return the response.

        Raises `UnavailableError` if there is no controller or no response, or when another controller is elected.
        """
        connection = await self.connection(api_key)
        return await connection.request(api_key, message)

    async def connection(self, api_key: ApiKey) -> ClientConnection:
        """Return the connection to the controller for this API; it is closed when another controller is elected.

        Raises `UnavailableError` if there is no controller, or it cannot be reached.
        """
        image = self._metadata.image
        if image.controller_id == NO_CONTROLLER:
            raise UnavailableError("there is no controller")
        purpose = f"controller-{api_key.name}"
        self._purposes[purpose] = None
        return await self._connections.connection(image.brokers, image.controller_id, purpose=purpose)

    async def back_off(self, seconds: float) -> None:
        """Sleep for `seconds`, or until another controller is elected."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def image_changed(self, delta: MetadataDelta) -> None:
        """Close the connections to the old controller if there is a new one or its registration has changed."""
        if _controller(delta.old) == _controller(delta.new):
            return
        for purpose in self._purposes:
            self._connections.close_purpose(delta.old.controller_id, purpose)
        self._changed.set()
        self._changed.clear()


def _controller(image: ClusterImage) -> tuple[object, ...]:
    return image.controller_id, image.controller_epoch, image.brokers.get(image.controller_id)
