"""The follower's side of a fetch session (KIP-227): a request has only the changed positions.

Pure. The leader's side is `serving.fetch_sessions`.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct, field

from odradek.broker.replication.follower import PartitionFetchState
from odradek.model import TopicPartition

_LAST_EPOCH: Final = 2**31 - 1


class SessionRequest(Struct, frozen=True, kw_only=True):
    """The content of one request: changed positions, and partitions to remove from the session."""

    session_id: int
    epoch: int
    positions: Mapping[TopicPartition, PartitionFetchState]
    forgotten: Mapping[TopicPartition, UUID]


class FetcherSession(Struct):
    """The session with one leader. `known` has the positions that were sent to the leader, by partition."""

    session_id: int = 0
    epoch: int = 0
    known: dict[TopicPartition, PartitionFetchState] = field(default_factory=dict)

    def request(self, wanted: Mapping[TopicPartition, PartitionFetchState]) -> SessionRequest:
        """Return the next request, after which the session fetches exactly the partitions of `wanted`."""
        known = self.known
        positions = {key: position for key, position in wanted.items() if known.get(key) != position}
        forgotten = {key: position.topic_id for key, position in known.items() if key not in wanted}
        for key, position in positions.items():
            if key in known and known[key].topic_id != position.topic_id:
                forgotten[key] = known[key].topic_id
        self.known = dict(wanted)
        epoch = self.epoch
        self.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return SessionRequest(session_id=self.session_id, epoch=epoch, positions=positions, forgotten=forgotten)

    def answered(self, session_id: int) -> None:
        """Record the response's session id; with 0, the next request is a full one."""
        if session_id == 0:
            self.reset()
        else:
            self.session_id = session_id

    def reset(self) -> None:
        """Start again with a full request: the leader may not know the session, or the last request."""
        self.session_id, self.epoch, self.known = 0, 0, {}
