"""Translates committed offsets of consumer groups and commits them at a mirror's target (KIP-545).

A group with members at the target is left alone, and an offset at the target is never lowered: consumers that moved to
the target continue from their own offsets.
"""

import logging
from collections.abc import Mapping

import re2

from odradek.clients import Admin
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.pipelines.config.pipelines import MirrorPipeline
from odradek.pipelines.mirror.offset_syncs import OffsetSyncs
from odradek.runtime import Disk
from odradek.spark.session import run_interruptible
from odradek.spark.settings import shared_keywords

_log = logging.getLogger("odradek.pipelines")

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class MirrorGroups:
    """The groups of one mirror."""

    def __init__(self, pipeline: MirrorPipeline, disk: Disk) -> None:
        self._disk, self._pipeline = disk, pipeline
        self._source = shared_keywords(pipeline.source.bootstrap_servers, pipeline.source.kafka)
        self._target = shared_keywords(pipeline.target.bootstrap_servers, pipeline.target.kafka)

    def carry(self) -> None:
        """Commit the translated offsets that are ahead of the target's. Errors are logged; the next call retries."""
        try:
            run_interruptible(self._carry)
        except (OdradekError, OSError) as error:
            _log.warning("%s: failed to carry group offsets, will retry: %s", self._pipeline.name, error)

    async def _carry(self) -> None:
        async with Admin(**self._source) as source:
            names = [each.group_id for each in await source.list_groups() if self._is_wanted(each.group_id)]
            found = await source.list_group_offsets(names) if names else {}
        syncs = OffsetSyncs.load(self._disk, self._pipeline.checkpoint)
        translated = {
            name: moved
            for name, offsets in found.items()
            if not isinstance(offsets, KafkaError) and (moved := self._translated(name, offsets, syncs))
        }
        if not translated:
            return
        async with Admin(**self._target) as target:
            present = await target.list_group_offsets(translated)
            for name, offsets in translated.items():
                there = present[name]
                ahead = {
                    partition: offset
                    for partition, offset in offsets.items()
                    if isinstance(there, KafkaError)
                    or partition not in there
                    or there[partition].offset < offset.offset
                }
                await self._commit(target, name, ahead)

    async def _commit(self, target: Admin, group: str, offsets: _Offsets) -> None:
        if not offsets:
            return
        try:
            await target.alter_group_offsets(group, offsets)
        except KafkaError as error:
            # Usually the group has members at the target by now.
            _log.info("%s: group %s is not carried: %s", self._pipeline.name, group, error)

    def _is_wanted(self, group: str) -> bool:
        return group != self._pipeline.group and any(re2.fullmatch(pattern, group) for pattern in self._pipeline.groups)

    def _translated(self, group: str, offsets: _Offsets, syncs: OffsetSyncs) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's offsets at the target, without those that cannot be translated."""
        found = {}
        for partition, committed in offsets.items():
            if (offset := syncs.translate(partition, committed.offset)) is not None:
                there = TopicPartition(self._pipeline.target.topic_prefix + partition.topic, partition.partition)
                found[there] = OffsetAndMetadata(offset, committed.metadata)
        return found
