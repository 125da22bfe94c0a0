"""What both ends of a command agree on: the controller, who gives it, and the broker that obeys (DESIGN 3).

The messages are `odradek.protocol.controller_messages`; here is what some of their numbers mean, without the messages,
which a broker that is alone need not load.
"""

from typing import Final, Protocol

from odradek.model import TopicPartition

INCREMENTAL: Final = 1
FULL: Final = 2
"""`type` of LeaderAndIsr and UpdateMetadata: some partitions, or all there are."""
LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata names for partitions of a topic that is deleted."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a stop that concerns a topic that is deleted."""


class LocalReplicas(Protocol):
    """A broker's own replicas, as commands touch them; `Partitions` are these."""

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Neither lead nor follow it any more, and delete its log if that is said; no harm if there is none."""

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether its log can't be used."""

    async def settled(self) -> None:
        """Return when what the present image says is so."""
