"""`/admin/reassign_partitions`: reassignments that a tool asks for by writing a node.

An entry is begun, and stays until its partition has the replicas it asks for, so that old tools see what is going on;
the node goes with its last entry. Whoever asks for something else over the wire takes the partition's entry away first.
"""

from collections.abc import Collection

from odradek.controller.placement import Replicas
from odradek.controller.reassignment import assignment_of
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.store import Delete, SetData
from odradek.model import TopicPartition
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitionsRequest:
    """The node as it was read, and its version."""

    node: ReassignPartitionsNode
    version: int

    def to_begin(self, image: ClusterImage) -> dict[TopicPartition, Replicas]:
        """Entries that nothing was done about: for `plan_reassignments`, whose errors are to be dropped here."""
        return {key: target for key, target in self.node.replicas.items() if not self._is_begun(image, key, target)}

    def completed(self, image: ClusterImage) -> list[TopicPartition]:
        """Entries whose partitions have what was asked for."""
        return [
            key
            for key, target in self.node.replicas.items()
            if self._is_begun(image, key, target)
            and (partition := image.partition(key)) is not None
            and not assignment_of(partition).in_progress
        ]

    def without(self, keys: Collection[TopicPartition]) -> SetData | Delete | None:
        """What takes entries away; `None` if none of them is there."""
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
