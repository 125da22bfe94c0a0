"""Logs of replicas that were deleted while this broker was down, or while their directory failed.

A log is deleted only if a note below `/admin/deleted_replicas` says so. A topic or replica that the metadata tree lacks
is no reason: the directory may come from Kafka, or the tree from an older backup. The controller writes notes for
brokers that are down. A broker writes one itself if it deleted a replica and could not rename its folder, as the
directory failed. Such a note has the form of one of a replica that was moved away. There is none
for a log that this broker has not opened since its start: its topic id is unknown.

| the metadata tree | the log |
|---|---|
| has a note that the topic of this id was deleted while the broker was down | renamed to `-stray`, and removed |
| has a note that the replica was moved away meanwhile, and the topic is deleted | deleted |
| has that note, a leader epoch not older than the log's, and a live in-sync replica | deleted |
| has another topic of the name, and no note | renamed to `-stray` |
| has a request to delete the topic | the controller's UpdateMetadata deletes it |
| anything else | kept, with a warning |

A log without a topic id is kept, too, unless nothing was ever appended to it: a power cut may tear the id of a new log.
Folders are removed after `file.delete.delay.ms`. After a restart, the first two rules
also apply to `-stray` folders; others, such as damaged logs, are left to the operator, as all are in Kafka.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from odradek.broker.log.directories.log_manager import LogManager
from odradek.metadata import paths
from odradek.metadata.image import UNNAMED, ClusterImage, TopicImage
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.metadata.store import NodeExists, NoNode, Store
from odradek.model import OdradekError, StorageError, TopicPartition
from odradek.runtime import Clock

_log = logging.getLogger("odradek.broker")
_MOST_NAMED: Final = 10
"""Limit of the logs that a warning names."""
_PAUSE_S: Final = 30.0
"""The time to the next search after a failure, and while a replica that was moved away cannot be deleted yet."""

Notes = set[tuple[UUID, int | None]]
"""`(topic id, partition)` of replicas that were moved away while this broker was down; None for a deleted topic."""


class StrayLogs:
    """The stray logs of one broker. `look` is called each time the broker has a complete image again."""

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
        """Topics whose stray logs are being removed: their notes stay until a later start finds no such log."""
        self._noted: Notes = set()
        """The notes of replicas whose deletion failed here: they stay until a later start."""
        self._named: list[str] = []
        """The logs that the last search kept and warned of."""

    def look(self) -> None:
        """Start a search for stray logs, unless one is running."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="looking for stray logs")

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def note_left(self) -> None:
        """Note the deleted replicas whose folders could not be renamed. Raises `OdradekError` of the tree."""
        for topic_id, partition in sorted(self._logs.deleted.left, key=str):
            with suppress(NodeExists):
                await self._store.create(paths.deleted_replica(self._broker_id, topic_id, partition))
            self._noted.add((topic_id, partition))
            self._logs.deleted.left.discard((topic_id, partition))

    async def _look(self) -> None:
        while True:
            try:
                if not await self._sort_out():
                    return
            except OdradekError as error:
                _log.warning("Failed to look for stray logs, retrying in %.0f s: %s", _PAUSE_S, error)
            await asyncio.sleep(_PAUSE_S)

    async def _sort_out(self) -> bool:
        """Search once, and return whether a replica that was moved away cannot be deleted yet."""
        await self.note_left()
        await self._delete_unnamed()
        suspects = {key: topic_id for key, topic_id in self._logs.topic_ids.items() if not self._is_own(key, topic_id)}
        notes = await self._read_notes()
        if not suspects and not self._logs.deleted.strays and not notes:
            return False
        deletions = set(await self._store.children(paths.DELETE_TOPICS))
        names = {key.topic for key in suspects}
        names |= {key.topic for key, topic_id in self._logs.topic_ids.items() if (topic_id, key.partition) in notes}
        aside = dict(self._logs.deleted.strays)
        names |= {key.topic for key, topic_id in aside.values() if (topic_id, key.partition) in notes}
        topics = await read_topics(self._store, sorted(names - deletions), BrokenNodes())
        left, waits = [], False
        for key, topic_id in suspects.items():
            if self._logs.topic_id(key) != topic_id or self._is_own(key, topic_id):
                continue  # a command deleted it meanwhile
            is_moved = (topic_id, key.partition) in notes
            if (topic_id, None) in notes:
                self._removing.add(topic_id)
                self._delete(key, "its topic was deleted while this broker was away", is_stray=True)
            elif is_moved and self._is_dispensable(key, topic_id, topics):
                self._delete(key, "it was moved to other brokers while this broker was away", is_stray=False)
            elif not is_moved and self._is_another(topic_id, topics.get(key.topic)):
                self._rename_to_stray(key)
            elif key.topic not in deletions:
                left.append(str(key))
            waits = waits or (is_moved and self._logs.topic_id(key) == topic_id)
        for folder, (key, found_id) in aside.items():
            topic = topics.get(key.topic)
            is_gone = key.topic in topics and (topic is None or topic.topic_id != found_id)
            if (found_id, None) in notes or ((found_id, key.partition) in notes and is_gone):
                self._removing.add(found_id)
                self._logs.deleted.remove_stray(folder, self._clock.now_ms())
        self._logs.deleted.sync()
        self._name(sorted(left))
        aside_here = {(found_id, key.partition) for key, found_id in aside.values()}
        await self._remove_notes(
            notes - self._logs.deleted.left - self._noted - aside_here,
            {*(found_id for _, found_id in aside.values()), *suspects.values()},
            topics,
        )
        return waits or bool(self._logs.deleted.left)

    async def _delete_unnamed(self) -> None:
        """Delete the logs without a topic id and without records that neither the image nor the tree has."""
        names = {key.topic for key in self._unnamed()}
        topics = await read_topics(self._store, sorted(names), BrokenNodes())  # without those whose node is broken
        for key in self._unnamed():  # a command may have changed them meanwhile
            topic = topics.get(key.topic)
            if key.topic in topics and (topic is None or key.partition not in topic.partitions):
                self._delete(key, "it is empty, has no topic id, and the metadata does not have it", is_stray=False)

    def _unnamed(self) -> list[TopicPartition]:
        image, logs = self._image(), self._logs
        keys = (key for key in logs if key not in logs.topic_ids and image.partition(key) is None)
        return [key for key in keys if (log := logs.get(key)) is not None and not log.log_end_offset]

    async def _remove_notes(
        self, notes: Notes, found: set[UUID | None], topics: Mapping[str, TopicImage | None]
    ) -> None:
        """Remove the notes whose logs are gone; keep all while a directory is offline, as it may have such logs."""
        if self._logs.directories.offline:
            return
        topics_here = found | self._removing | set(self._logs.topic_ids.values())
        here = {(topic_id, key.partition) for key, topic_id in self._logs.topic_ids.items() if self._lacks(key, topics)}
        for topic_id, partition in notes:
            if topic_id not in topics_here if partition is None else (topic_id, partition) not in here:
                with suppress(NoNode):
                    await self._store.delete(paths.deleted_replica(self._broker_id, topic_id, partition))

    def _name(self, left: list[str]) -> None:
        if left and left != self._named:
            _log.warning(
                "%d logs are left alone, as the metadata does not have these replicas and does not say that they were"
                " deleted: %s. If the metadata is an older copy, they may be the only ones: restore the newer metadata;"
                " if they are not needed, stop the broker and delete their folders",
                len(left),
                ", ".join(left[:_MOST_NAMED]),
            )
        self._named = left

    async def _read_notes(self) -> Notes:
        try:
            names = await self._store.children(paths.DELETED_REPLICAS)
        except NoNode:
            return set()
        found = map(paths.parse_deleted_replica, names)
        return {
            (note.topic_id, note.partition) for note in found if note is not None and note.broker == self._broker_id
        }

    def _is_own(self, key: TopicPartition, topic_id: UUID) -> bool:
        """Return whether this broker has a replica of the partition, by the image."""
        topic, image = self._image().topics.get(key.topic), self._image().partition(key)
        if topic is None or image is None:
            return False
        return topic.topic_id in (UNNAMED, topic_id) and self._broker_id in image.replicas

    def _lacks(self, key: TopicPartition, topics: Mapping[str, TopicImage | None]) -> bool:
        """Return whether `topics`, read after the notes, assign this broker no replica; else a note is outdated."""
        topic = topics.get(key.topic)
        if topic is None or topic.topic_id != self._logs.topic_id(key) or key.partition not in topic.partitions:
            return True
        return self._broker_id not in topic.partitions[key.partition].replicas

    def _is_dispensable(self, key: TopicPartition, topic_id: UUID, topics: Mapping[str, TopicImage | None]) -> bool:
        """Return whether the topic of a log was deleted, or other brokers have the log's records."""
        log = self._logs.get(key)
        if key.topic not in topics or log is None:
            return False
        topic = topics[key.topic]
        if topic is None or self._is_another(topic_id, topic):
            return True
        image = topic.partitions.get(key.partition)
        if image is None or not image.is_readable or self._broker_id in image.replicas:
            return False
        return image.leader_epoch >= log.epochs.latest and not self._image().brokers.keys().isdisjoint(image.isr)

    @staticmethod
    def _is_another(topic_id: UUID, topic: TopicImage | None) -> bool:
        return topic is not None and topic.topic_id not in (UNNAMED, topic_id)

    def _delete(self, key: TopicPartition, reason: str, *, is_stray: bool) -> None:
        """Delete a log. If that fails, only the next start finds it, and its note stays until then."""
        _log.warning("Deleting the log of %s: %s", key, reason)
        try:
            self._logs.delete(key, self._clock.now_ms(), is_stray=is_stray)
        except StorageError as error:
            _log.error("Failed to delete the log of %s: %s", key, error)

    def _rename_to_stray(self, key: TopicPartition) -> None:
        try:
            self._logs.rename_to_stray(key, "of another topic than the metadata's of the same name")
        except StorageError as error:
            _log.error("Failed to rename the log of %s: %s", key, error)
