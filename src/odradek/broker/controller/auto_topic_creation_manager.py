"""Kafka's `AutoTopicCreationManager`: creates topics that requests need, by the local or the remote controller."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from odradek.broker.cluster.requests.controller_requests import ControllerRequests
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata_cache import MetadataCache
from odradek.metadata.image import MetadataDelta
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey

_TIMEOUT_MS: Final = 30_000
_MOST_CREATIONS: Final = 1000
"""How many topics are created at once: requests do not wait for the end of a creation, and may name others."""


class AutoTopicCreationManager:
    """Creates a topic once for all requests that need it.

    `wait_until_applied` returns when this broker leads or follows its partitions of the current image.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        requests: ControllerRequests[Controller],
        *,
        wait_until_applied: Callable[[], Awaitable[None]],
    ) -> None:
        self._metadata = metadata
        self._requests = requests
        self._wait_until_applied = wait_until_applied
        self._creations: dict[str, asyncio.Task[None]] = {}
        self._awaited: list[tuple[str, asyncio.Future[None]]] = []

    async def ensure(self, topic: NewTopic) -> None:
        """Create a missing topic; return when the image has it. Raise `KafkaError` or `UnavailableError` on failure.

        The creation goes on if the caller is cancelled. Above `_MOST_CREATIONS`, raise UNKNOWN_TOPIC_OR_PARTITION.
        """
        creation = self._creations.get(topic.name)
        if creation is None:
            if len(self._creations) >= _MOST_CREATIONS:
                raise KafkaError(ErrorCode.unknown_topic_or_partition)
            creation = asyncio.get_running_loop().create_task(self._create(topic), name=f"creating {topic.name}")
            self._creations[topic.name] = creation
            creation.add_done_callback(partial(self._ended, topic.name))
        await asyncio.shield(creation)

    def _ended(self, name: str, creation: asyncio.Task[None]) -> None:
        self._creations.pop(name, None)
        if not creation.cancelled():
            creation.exception()  # callers that still wait raise it, and none may

    async def _create(self, topic: NewTopic) -> None:
        if topic.name in self._metadata.image.topics:
            return
        controller = self._requests.local_controller()
        if controller is not None:
            (created,) = await controller.create_topics([topic])
            await self._wait_until_applied()
            error = created.error
        else:
            error = await self._request_creation(topic)
        if error is not None and error.code is not ErrorCode.topic_already_exists:
            raise error
        await self._seen(topic.name)

    async def _request_creation(self, topic: NewTopic) -> KafkaError | None:
        wanted = {
            "name": topic.name,
            "num_partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in topic.config.items()],
        }
        message = {"topics": [wanted], "timeout_ms": _TIMEOUT_MS, "validate_only": False}
        answer = await self._requests.send(ApiKey.CREATE_TOPICS, message)
        (result,) = answer.topics
        if result.error_code is ErrorCode.none:
            return None
        return KafkaError(result.error_code, result.error_message or "")

    async def _seen(self, topic: str) -> None:
        """Wait until the image has `topic`. Raises `KafkaError` REQUEST_TIMED_OUT after `_TIMEOUT_MS`."""
        if topic in self._metadata.image.topics:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((topic, future))
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                await future
        except TimeoutError:
            raise KafkaError(ErrorCode.request_timed_out, f"the topic {topic} is not in the metadata yet") from None

    def image_changed(self, delta: MetadataDelta) -> None:
        """Resume the calls of `ensure` whose topic is in the image now."""
        topics = delta.new.topics
        waiting, self._awaited = self._awaited, []
        for topic, future in waiting:
            if topic not in topics:
                self._awaited.append((topic, future))
            elif not future.done():
                future.set_result(None)

    def kill(self) -> None:
        for creation in self._creations.values():
            creation.cancel()
