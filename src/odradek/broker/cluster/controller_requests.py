"""Requests to the controller, which end when another broker is elected.

A controller that hangs, or whose network is down, neither answers nor closes its connections. When its session has
ended and another broker is elected, requests to the old controller fail, so that they can be sent to the new one. Each
API has its own connection, because the controller answers CreateTopics only when the other brokers know the topics.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.metadata.image import NO_CONTROLLER, ClusterImage
from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.schemas import Message
from odradek.wire.client_connection import ClientConnection

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


class ControllerRequests:
    """One broker's requests to the controller."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._changed = asyncio.Event()
        self._purposes: set[str] = set()

    async def ask(self, api_key: ApiKey, message: Message) -> Any:
        """Send a request and return the response.

        Raises `UnavailableError` without a controller, without a response, and at once after another election.
        """
        connection = await self.connection(api_key)
        return await connection.request(api_key, message)

    async def connection(self, api_key: ApiKey) -> ClientConnection:
        """Return a connection to the controller for this API; it is closed when another broker is elected.

        Raises `UnavailableError` as `ask` does.
        """
        image = self._broker.image
        if image.controller_id == NO_CONTROLLER:
            raise UnavailableError("there is no controller")
        purpose = f"controller-{api_key.name}"
        self._purposes.add(purpose)
        return await self._broker.peers.connection(image.brokers, image.controller_id, purpose=purpose)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not past the election of another controller."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Close the connections to a controller that is replaced."""
        if _controller(old) == _controller(new):
            return
        for purpose in self._purposes:
            self._broker.peers.close_purpose(old.controller_id, purpose)
        self._changed.set()
        self._changed.clear()


def _controller(image: ClusterImage) -> tuple[object, ...]:
    return image.controller_id, image.controller_epoch, image.brokers.get(image.controller_id)
