"""Sends the controller's requests to one broker: one request in flight, repeated until it is answered.

The connection is separate from others, because a broker handles the requests of a connection one after the other.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster.requests.inter_broker_requests import connect, encode, send
from odradek.broker.controller.channels.pending_updates import PendingUpdates, Stop
from odradek.broker.controller.channels.requests import replicas_in, update_metadata
from odradek.metadata.image import BrokerImage
from odradek.model import AuthenticationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import Runtime
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.wire.client_authentication import ClientSecurity
from odradek.wire.client_connection import ClientConnection

if TYPE_CHECKING:
    from odradek.broker.controller.channels.controller_channel_manager import ControllerChannelManager

_FIRST_RETRY_S: Final = 0.02
_LONGEST_RETRY_S: Final = 1.0
_REQUEST_TIMEOUT_MS: Final = 30_000
"""Kafka's `controller.socket.timeout.ms`. A broker may have to open thousands of logs before it answers."""
_log = logging.getLogger("odradek.broker")


class RequestSender:
    """The sender for one registration of a broker, from its construction until `close`."""

    def __init__(
        self, manager: "ControllerChannelManager", broker: BrokerImage, runtime: Runtime, security: ClientSecurity
    ) -> None:
        self.broker = broker
        self.pending = PendingUpdates(everything=True)
        self._in_flight = PendingUpdates()
        self._manager = manager
        self._runtime = runtime
        self._security = security
        self.acknowledged = asyncio.Event()
        """Set while there is nothing to send and no request in flight."""
        self._wakeup = asyncio.Event()
        self._wakeup.set()
        self._connection: ClientConnection | None = None
        self._retry_log = RateLimitedLog(_log)
        name = f"commands to broker {broker.broker_id}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def stop(self, topic_partition: TopicPartition, stop: Stop) -> None:
        """Stop a replica, unless the same request is in flight."""
        if self._in_flight.stops.get(topic_partition) != stop:
            self.pending.stops[topic_partition] = stop
            self.wake()

    def wake(self) -> None:
        """Start sending the `pending` updates."""
        self.acknowledged.clear()
        self._wakeup.set()

    def close(self) -> None:
        self.acknowledged.set()
        self._task.cancel()
        if self._connection is not None:
            self._connection.close("the controller has no more to say")

    async def _run(self) -> None:
        delay_s = _FIRST_RETRY_S
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if not self.pending:
                self.acknowledged.set()
                continue
            batch = self._in_flight = self.pending.take()
            try:
                await self._send(batch)
                self._in_flight = PendingUpdates()
                delay_s = _FIRST_RETRY_S
                self._wakeup.set()
                continue
            except (AuthenticationError, KafkaError, UnavailableError) as error:
                if delay_s == _LONGEST_RETRY_S:
                    text = "Broker %d is unreachable from the controller, which retries each second: %s"
                    self._retry_log.log("unreachable", logging.WARNING, text, self.broker.broker_id, error)
            except Exception:
                # Continue: repeating a request does no harm, but a broker must not stay without requests.
                _log.exception("Failed to send a request to broker %d", self.broker.broker_id)
            self.pending.restore(batch)
            self._in_flight = PendingUpdates()
            self._wakeup.set()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_RETRY_S)

    async def _send(self, batch: PendingUpdates) -> None:
        """Send all updates in their present state. Raises `KafkaError` if refused, `UnavailableError` if unanswered."""
        manager, broker = self._manager, self.broker
        message = update_metadata(manager.identity, broker, manager.image, batch)
        if self._connection is None or self._connection.closed:
            name = f"controller-{manager.identity.broker_id}"
            self._connection = await connect(
                self._runtime, broker, name, request_timeout_ms=_REQUEST_TIMEOUT_MS, security=self._security
            )
        # Building and encoding 10,000 partitions takes 20 ms each; other tasks run in between.
        await asyncio.sleep(0)
        body = encode(ApiKey.UPDATE_METADATA, message)
        await asyncio.sleep(0)
        answer = await send(self._connection, ApiKey.UPDATE_METADATA, body)
        if answer.error_code is not ErrorCode.none:
            manager.on_refused(answer.error_code)
            raise KafkaError(answer.error_code, f"it refused UpdateMetadata with {answer.error_code.name.upper()}")
        manager.on_response(broker, replicas_in(message, broker.broker_id), batch.stops, answer.partition_errors)
