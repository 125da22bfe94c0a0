"""Topics that are created because somebody needs them: here on the controller, elsewhere by asking it."""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.controller import NewTopic
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_TIMEOUT_MS: Final = 30_000


class TopicsOnDemand:
    """One broker's. However many ask for a topic at the same time, it is created once."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._creations: dict[str, asyncio.Task[None]] = {}
        self._awaited: list[tuple[str, asyncio.Future[None]]] = []

    async def ensure(self, topic: NewTopic) -> None:
        """Return when a topic of that name is in the image. Raises `KafkaError`, and `UnavailableError`."""
        creation = self._creations.get(topic.name)
        if creation is None:
            creation = asyncio.get_running_loop().create_task(self._create(topic), name=f"creating {topic.name}")
            self._creations[topic.name] = creation
            creation.add_done_callback(lambda _: self._creations.pop(topic.name, None))
        await asyncio.shield(creation)

    async def _create(self, topic: NewTopic) -> None:
        broker = self._broker
        if topic.name in broker.image.topics:
            return
        if broker.metadata_loop.is_controller:
            (created,) = await broker.create_topics([topic])
            error = created.error
        else:
            error = await self._ask(topic)
        if error is not None and error.code is not ErrorCode.topic_already_exists:
            raise error
        await self._seen(topic.name)

    async def _ask(self, topic: NewTopic) -> KafkaError | None:
        wanted = {
            "name": topic.name,
            "num_partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in topic.config.items()],
        }
        message = {"topics": [wanted], "timeout_ms": _TIMEOUT_MS, "validate_only": False}
        answer = await self._broker.controller_requests.ask(ApiKey.CREATE_TOPICS, message)
        (result,) = answer.topics
        if result.error_code is ErrorCode.none:
            return None
        return KafkaError(result.error_code, result.error_message or "")

    async def _seen(self, topic: str) -> None:
        """Wait until the image has a topic that was created elsewhere."""
        if topic in self._broker.image.topics:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((topic, future))
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                await future
        except TimeoutError:
            raise KafkaError(ErrorCode.request_timed_out, f"the topic {topic} is not in the metadata yet") from None

    def image_changed(self) -> None:
        """Tell those whose topic is there."""
        topics = self._broker.image.topics
        waiting, self._awaited = self._awaited, []
        for topic, future in waiting:
            if topic not in topics:
                self._awaited.append((topic, future))
            elif not future.done():
                future.set_result(None)

    def kill(self) -> None:
        """Create nothing more."""
        for creation in self._creations.values():
            creation.cancel()
