"""What a broker asks of the controller, whoever that is: nobody waits for one that is the controller no longer.

A controller that stands still, or whose network is gone, neither answers nor closes its connections. When its session
has ended and another broker is elected, what it owes is given up, and can be asked of the other. Each kind of request
has a purpose, since the controller answers those that create topics when the other brokers know of them.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.metadata.image import NO_CONTROLLER, ClusterImage
from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.schemas import Message
from odradek.wire.outgoing import Connection

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


class ControllerRequests:
    """One broker's."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._changed = asyncio.Event()
        self._purposes: set[str] = set()

    async def ask(self, api_key: ApiKey, message: Message) -> Any:
        """The controller's answer.

        Raises `UnavailableError` if there is no controller, if it does not answer, and at once when it is another.
        """
        connection = await self.connection(api_key)
        return await connection.request(api_key, message)

    async def connection(self, api_key: ApiKey) -> Connection:
        """A connection to the controller for this kind of request; it is closed when the controller is another.

        Raises `UnavailableError` as `ask` does.
        """
        image = self._broker.image
        if image.controller_id == NO_CONTROLLER:
            raise UnavailableError("there is no controller")
        purpose = f"controller-{api_key.name}"
        self._purposes.add(purpose)
        return await self._broker.peers.connection(image.brokers, image.controller_id, purpose=purpose)

    async def pause(self, seconds: float) -> None:
        """Sleep, but not past the moment when the controller is another."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """The broker has another image."""
        if _controller(old) == _controller(new):
            return
        for purpose in self._purposes:
            self._broker.peers.close_purpose(old.controller_id, purpose)
        self._changed.set()
        self._changed.clear()


def _controller(image: ClusterImage) -> tuple[object, ...]:
    return image.controller_id, image.controller_epoch, image.brokers.get(image.controller_id)
