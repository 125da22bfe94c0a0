"""The `StateChange` of one partition: its next state, and the version of the state that it replaces."""

from msgspec import Struct

from odradek.metadata import paths
from odradek.metadata.image import PartitionImage
from odradek.metadata.nodes import NO_LEADER, RECOVERING, PartitionStateNode
from odradek.metadata.store import SetData
from odradek.model import TopicPartition
from odradek.model.probes import transition


class StateChange(Struct, frozen=True, kw_only=True):
    """A partition's new state, and the version of the stored state that it replaces.

    `is_unclean` is true if the new leader was not in the ISR.
    """

    partition: TopicPartition
    state: PartitionStateNode
    version: int
    is_unclean: bool = False

    def operation(self) -> SetData:
        """Return the write, which fails if the stored state has another version."""
        return SetData(path=paths.partition_state(self.partition), data=self.state.encode(), version=self.version)


def new_leadership(
    key: TopicPartition, partition: PartitionImage, leader: int, isr: tuple[int, ...], *, controller_epoch: int
) -> StateChange:
    """Return the change to this leader and ISR in the next leader epoch, which fences requests with the old one.

    A leader that was not in the ISR may lack records, and is marked as recovering (KIP-704).
    """
    transition("partition", _state(partition.leader), _state(leader))
    is_unclean = leader in isr and leader not in partition.isr
    state = PartitionStateNode(
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=RECOVERING if is_unclean else partition.leader_recovery_state,
    )
    return StateChange(partition=key, state=state, version=partition.state_version, is_unclean=is_unclean)


def _state(leader: int) -> str:
    return "OFFLINE" if leader == NO_LEADER else "ONLINE"
