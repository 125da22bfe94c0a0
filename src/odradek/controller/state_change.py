"""A decision about one partition: its next state, in place of the one that was decided upon."""

from odradek.metadata import paths
from odradek.metadata.image import PartitionImage
from odradek.metadata.nodes import RECOVERING, PartitionStateNode
from odradek.metadata.store import SetData
from odradek.model import TopicPartition
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A partition's new state, and the version of the old one."""

    partition: TopicPartition
    state: PartitionStateNode
    version: int

    def operation(self) -> SetData:
        """What writes it, unless somebody wrote meanwhile."""
        return SetData(path=paths.partition_state(self.partition), data=self.state.encode(), version=self.version)


def new_leadership(
    key: TopicPartition, partition: PartitionImage, leader: int, isr: tuple[int, ...], *, controller_epoch: int
) -> StateChange:
    """A leader and an ISR under the next leader epoch, so that whoever reads or writes under the old one is told.

    A leader that was not in sync may lack records, and is said to be recovering (KIP-704).
    """
    is_unclean = leader in isr and leader not in partition.isr
    state = PartitionStateNode(
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=RECOVERING if is_unclean else partition.leader_recovery_state,
    )
    return StateChange(partition=key, state=state, version=partition.state_version)
