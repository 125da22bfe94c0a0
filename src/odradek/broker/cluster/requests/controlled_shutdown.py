"""Controlled shutdown: before a broker stops, the controller moves its leaderships to other brokers.

The broker repeats the request until it leads no partition that another replica could lead, no other broker is left, or
`controlled.shutdown.max.retries` is reached.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from typing import Any, Final, Protocol

from odradek.broker.cluster.requests.controller_requests import ControllerRequests
from odradek.broker.metadata_cache import MetadataCache
from odradek.metadata.image import MetadataDelta
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey

_REQUEST_TIMEOUT_MS: Final = 10_000
_log = logging.getLogger("odradek.broker")


class LocalController(Protocol):
    """The controller, if this broker is elected."""

    @property
    def shutting_down(self) -> Set[int]:
        """Brokers that have requested a controlled shutdown."""

    async def shut_down(self, broker_id: int, broker_epoch: int) -> Sequence[TopicPartition]:
        """Move the broker's leaderships; return the replicated partitions that it still leads."""


class ControlledShutdown:
    """One broker's controlled shutdown. `broker_epoch` returns its current broker epoch.

    It ends when `has_session` returns False: a broker that is cut off from the tree leads nothing soon, and its
    registration expires.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        requests: ControllerRequests[Any],
        broker_epoch: Callable[[], int],
        *,
        has_session: Callable[[], Awaitable[bool]],
    ) -> None:
        self._has_session = has_session
        self._metadata = metadata
        self._requests = requests
        self._broker_epoch = broker_epoch
        self._changed = asyncio.Event()

    def image_changed(self, delta: MetadataDelta) -> None:
        """End the backoff if the controller or the set of brokers has changed."""
        old, new = delta.old, delta.new
        before = old.controller_id, old.controller_epoch, old.brokers
        if before != (new.controller_id, new.controller_epoch, new.brokers):
            self._changed.set()

    async def move_leaders(self) -> None:
        """Move this broker's leaderships; return when it may stop. Logs a warning if it still leads partitions."""
        config = self._metadata.config
        problem = ""
        for attempt in range(config.controlled_shutdown_max_retries + 1):
            if not config.controlled_shutdown_enable or not self._has_others():
                return
            if attempt:
                _log.info("controlled shutdown: %s; trying again", problem)
                with suppress(TimeoutError):
                    async with asyncio.timeout(config.controlled_shutdown_retry_backoff_ms / 1000):
                        await self._changed.wait()
            self._changed.clear()
            if not await self._has_session():
                problem = "its session with the metadata tree is over, or the tree does not answer"
                break
            try:
                remaining = await self._request()
            except (KafkaError, UnavailableError) as error:
                problem = str(error)
                continue
            if not remaining:
                return
            problem = f"{remaining} partitions that broker {self._metadata.broker_id} leads can be led by nobody else"
        if problem and self._has_others():
            _log.warning("the broker stops without a controlled shutdown: %s", problem)

    def _local_controller(self) -> LocalController | None:
        found: LocalController | None = self._requests.local_controller()
        return found

    def _has_others(self) -> bool:
        others = self._metadata.image.brokers.keys() - {self._metadata.broker_id}
        controller = self._local_controller()
        return bool(others if controller is None else others - controller.shutting_down)

    async def _request(self) -> int:
        """Send one request, and return the number of replicated partitions that the broker still leads."""
        broker_id, broker_epoch = self._metadata.broker_id, self._broker_epoch()
        controller = self._local_controller()
        if controller is not None:
            return len(await controller.shut_down(broker_id, broker_epoch))
        api_key = ApiKey.CONTROLLED_SHUTDOWN
        connection = await self._requests.connection(api_key)
        message = {"broker_id": broker_id, "broker_epoch": broker_epoch}
        answer = await connection.request(api_key, message, timeout_ms=_REQUEST_TIMEOUT_MS)
        if answer.error_code is not ErrorCode.none:
            code: ErrorCode = answer.error_code
            raise KafkaError(code, f"the controller answered {code.name.upper()}")
        return len(answer.remaining_partitions)
