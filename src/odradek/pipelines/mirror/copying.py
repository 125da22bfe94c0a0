"""Copies the batches of a mirror with `groups`, and stores each batch's source and target offsets.

Spark calls `BatchCopier` for every batch, in a thread of the driver. Spark's checkpoint has the offsets that the batch
reads (`CHECKPOINT/offsets/N`); the target offsets are those by which the target's logs grew during the write.
"""

import json
from collections.abc import Mapping
from typing import Any

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import LATEST, list_offsets
from odradek.model import StorageError, TopicPartition
from odradek.pipelines.config.pipelines import MirrorPipeline
from odradek.pipelines.mirror.offset_syncs import OffsetSyncs
from odradek.runtime import Disk
from odradek.spark.reading.blocking_cluster import BlockingCluster
from odradek.spark.reading.planning import StreamOffset, decode_offset, recreated_topics, without_topics
from odradek.spark.settings import ScanSettings, client_settings

_Offsets = Mapping[TopicPartition, int]


class BatchCopier:
    """The function of a mirror's `foreachBatch`."""

    def __init__(self, pipeline: MirrorPipeline, disk: Disk, options: Mapping[str, str]) -> None:
        self._disk, self._options = disk, options
        self._checkpoint, self._prefix = pipeline.checkpoint, pipeline.target.topic_prefix
        target = pipeline.target
        client = {key: value for key, value in target.kafka.items() if key in _shared_keys()}
        self._settings = client_settings(ScanSettings, target.bootstrap_servers, client)
        self._syncs = OffsetSyncs.load(disk, pipeline.checkpoint)

    def __call__(self, batch: Any, batch_id: int) -> None:
        """Write the batch, and save its offsets. If this raises, a restart writes the batch again."""
        ranges = batch_ranges(self._disk, self._checkpoint, batch_id)
        moved = {partition for partition, (start, end) in ranges.items() if end > start}
        before = self._ends(moved)
        batch.write.format("odradek").mode("append").options(**self._options).save()
        for partition, end in self._ends(moved).items():
            self._syncs.add(partition, ranges[partition], (before[partition], end))
        if moved:
            self._syncs.save(self._disk, self._checkpoint)

    def _ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offset of each source partition's copy at the target."""
        if not partitions:
            return {}
        there = {TopicPartition(self._prefix + each.topic, each.partition): each for each in partitions}

        async def work(cluster: Cluster) -> dict[TopicPartition, int]:
            found = await list_offsets(cluster, dict.fromkeys(there, LATEST))
            return {there[partition]: offset.offset for partition, offset in found.items()}

        cluster = BlockingCluster(self._settings)
        try:
            return cluster.run(work)
        finally:
            cluster.close()


def batch_ranges(disk: Disk, checkpoint: str, batch_id: int) -> dict[TopicPartition, tuple[int, int]]:
    """Return the (start, end) offsets that a batch reads, from Spark's checkpoint. Raise `StorageError` if unreadable.

    The start is 0 for partitions of recreated topics, and for those new in this batch, even if their logs begin later.
    """
    end = _offset(disk, checkpoint, batch_id)
    start: _Offsets = end.start if end.start is not None else {}
    if end.start is None and batch_id > 0:
        before = _offset(disk, checkpoint, batch_id - 1)
        start = without_topics(before.offsets, recreated_topics(before.topic_ids, end.topic_ids))
    return {partition: (start.get(partition, 0), offset) for partition, offset in end.offsets.items()}


def _offset(disk: Disk, checkpoint: str, batch_id: int) -> StreamOffset:
    path = f"{checkpoint}/offsets/{batch_id}"
    try:
        # The lines are the version, the batch's settings, and one per source: a mirror has one.
        return decode_offset(json.loads(disk.read_file(path).decode().splitlines()[2]))
    except (OSError, ValueError, IndexError) as error:
        raise StorageError(f"{path} cannot be read, and groups = […] needs it: {error}") from None


def _shared_keys() -> frozenset[str]:
    from odradek.clients.settings import ClientSettings
    from odradek.config.definition import definitions

    return frozenset(definitions(ClientSettings))
