"""`AlterPartitionItem`, a leader's request for another ISR of one partition (KIP-497)."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.metadata.nodes import RECOVERED

ANY_EPOCH: Final = -1


class AlterPartitionItem(Struct, frozen=True, kw_only=True):
    """A leader's request for one partition: ISR members with their broker epochs (-1: unknown), in order.

    `partition_epoch` is the version of the state that the leader knows. The first request after an unclean election
    marks the leader as recovered: as in Kafka, there is nothing to recover.
    """

    isr: Mapping[int, int]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
