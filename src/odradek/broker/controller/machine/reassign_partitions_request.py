"""Reassignments that a tool requests by writing `/admin/reassign_partitions`.

An entry stays until its partition has the requested replicas, so that old tools see the progress; the node is deleted
with its last entry. AlterPartitionReassignments for a partition removes the partition's entry first.
"""

from collections.abc import Collection

from msgspec import Struct

from odradek.broker.controller.machine.reassignment import assignment_of
from odradek.metadata import paths
from odradek.metadata.cluster_load import Replicas
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.store import Delete, SetData
from odradek.model import TopicPartition


class ReassignPartitionsRequest(Struct, frozen=True, kw_only=True):
    """The content of `/admin/reassign_partitions`, and the node's version."""

    node: ReassignPartitionsNode
    version: int

    def to_begin(self, image: ClusterImage) -> dict[TopicPartition, Replicas]:
        """Return the targets of entries that are not begun, for `plan_reassignments`."""
        return {key: target for key, target in self.node.replicas.items() if not self._is_begun(image, key, target)}

    def completed(self, image: ClusterImage) -> list[TopicPartition]:
        """Return the entries whose partitions have the requested replicas."""
        return [
            key
            for key, target in self.node.replicas.items()
            if self._is_begun(image, key, target)
            and (partition := image.partition(key)) is not None
            and not assignment_of(partition).in_progress
        ]

    def without(self, keys: Collection[TopicPartition]) -> SetData | Delete | None:
        """Return the operation that removes these entries, or the node if none is left; `None` if nothing changes."""
        left = {key: target for key, target in self.node.replicas.items() if key not in keys}
        if not left:
            return Delete(path=paths.REASSIGN_PARTITIONS, version=self.version)
        if len(left) == len(self.node.replicas):
            return None
        data = ReassignPartitionsNode(replicas=left).encode()
        return SetData(path=paths.REASSIGN_PARTITIONS, data=data, version=self.version)

    def _is_begun(self, image: ClusterImage, key: TopicPartition, target: Replicas) -> bool:
        partition = image.partition(key)
        return partition is not None and assignment_of(partition).target == target
