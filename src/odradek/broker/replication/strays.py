"""Logs of replicas that this broker was to delete while it was away.

A log is stray if the metadata tree says so: an absence in the tree is no reason to delete anything, as a directory may
come from Kafka, and a tree from a backup.

| the tree | the log |
|---|---|
| has a note below `/admin/deleted_replicas` that the topic of this id was deleted while the broker was away | stray |
| has another topic of the name | stray |
| has the topic, and this broker is no replica of the partition | deleted, as by the StopReplica that it missed |
| has nothing of the topic, or a node that cannot be read | left alone, and named in the log |
| has a wish to delete the topic | the controller's StopReplica deletes it |

A log without a topic id is left alone, too. A stray log is renamed to `-stray`, as in Kafka, and removed after
`file.delete.delay.ms`; Kafka leaves removing it to the operator. After a restart, the first two rules hold for renamed
folders, too; others are an operator's, such as logs that were put aside because they are damaged.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from odradek.log.manager import LogManager
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, ClusterImage, TopicImage
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.metadata.store import NoNode, Store
from odradek.model import OdradekError, StorageError, TopicPartition
from odradek.runtime import Clock

_log = logging.getLogger("odradek.broker")
_MOST_NAMED: Final = 10
"""Logs that one line names."""


class StrayLogs:
    """One broker's. `look` is called each time the broker knows the whole image again."""

    def __init__(
        self, store: Store, broker_id: int, logs: LogManager, clock: Clock, *, image: Callable[[], ClusterImage]
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._logs = logs
        self._clock = clock
        self._image = image
        self._looking: asyncio.Task[None] | None = None
        self._removing: set[UUID | None] = set()
        """Topics whose stray logs are on their way out: their notes stay until a start that finds none."""

    def look(self) -> None:
        """Begin to look for stray logs, unless that is going on."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="looking for stray logs")

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        try:
            await self._sort_out()
        except OdradekError as error:
            _log.warning("stray logs stay until the next start or session: %s", error)

    async def _sort_out(self) -> None:
        suspects = {key: topic_id for key, topic_id in self._logs.topic_ids.items() if not self._is_own(key, topic_id)}
        aside = dict(self._logs.strays)
        notes = await self._read_notes()
        if not suspects and not aside and not notes:
            return
        names = {key.topic for key in suspects} | {key.topic for key, _ in aside.values()}
        wishes = set(await self._store.children(paths.DELETE_TOPICS))
        topics = await read_topics(self._store, sorted(names - wishes), BrokenNodes())
        left = []
        for key, topic_id in suspects.items():
            if self._logs.topic_id(key) != topic_id or self._is_own(key, topic_id):
                continue  # a command came meanwhile
            topic = topics.get(key.topic)
            if topic_id in notes:
                self._removing.add(topic_id)
                self._delete(key, "its topic was deleted while this broker was away", is_stray=True)
            elif self._is_another(topic_id, topic):
                self._delete(key, "its topic was deleted, and there is another one of the name", is_stray=True)
            elif replicas := self._replicas_elsewhere(key, topic_id, topic):
                self._delete(key, f"the replicas of the partition are {list(replicas)}", is_stray=False)
            elif key.topic not in wishes:
                left.append(str(key))
        for folder, (key, found_id) in aside.items():
            if found_id in notes or self._is_another(found_id, topics.get(key.topic)):
                self._removing.add(found_id)
                self._logs.remove_stray(folder, self._clock.now_ms())
        if left:
            some = ", ".join(sorted(left)[:_MOST_NAMED])
            _log.warning("%d logs are of topics that are not in the metadata, and are left alone: %s", len(left), some)
        here = {*self._logs.topic_ids.values(), *(found_id for _, found_id in aside.values()), *suspects.values()}
        for topic_id in notes - here - self._removing:
            with suppress(NoNode):
                await self._store.delete(paths.deleted_replica(self._broker_id, topic_id))

    async def _read_notes(self) -> set[UUID]:
        """Return the ids of the topics that were deleted without this broker."""
        try:
            names = await self._store.children(paths.DELETED_REPLICAS)
        except NoNode:
            return set()
        return {topic_id for name in names if (topic_id := paths.deleted_topic(name, self._broker_id)) is not None}

    def _is_own(self, key: TopicPartition, topic_id: UUID) -> bool:
        """Return whether this broker has a replica of the partition, by the image."""
        topic, image = self._image().topics.get(key.topic), self._image().partition(key)
        if topic is None or image is None:
            return False
        return topic.topic_id in (UNNAMED, topic_id) and self._broker_id in image.replicas

    def _replicas_elsewhere(self, key: TopicPartition, topic_id: UUID, topic: TopicImage | None) -> tuple[int, ...]:
        """Return the partition's replicas by the tree, none if this broker is one, or if the tree has no such topic."""
        image = None if topic is None or topic.topic_id != topic_id else topic.partitions.get(key.partition)
        return () if image is None or self._broker_id in image.replicas else image.replicas

    @staticmethod
    def _is_another(topic_id: UUID | None, topic: TopicImage | None) -> bool:
        return topic is not None and topic_id is not None and topic.topic_id not in (UNNAMED, topic_id)

    def _delete(self, key: TopicPartition, reason: str, *, is_stray: bool) -> None:
        _log.warning("the log of %s is removed: %s", key, reason)
        try:
            self._logs.delete(key, self._clock.now_ms(), is_stray=is_stray)
        except StorageError as error:
            _log.error("%s", error)
