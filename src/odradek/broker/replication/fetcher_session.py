"""The follower's half of a fetch session (KIP-227): what the leader knows already need not be said again.

Pure: positions go in, what is to be sent comes out; the leader's half is `serving.fetch_sessions`.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.broker.replication.follower import FetchPosition
from odradek.model import TopicPartition
from odradek.model.values import dataclass, field

_LAST_EPOCH: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """One fetch: positions that are new to the leader, and partitions that it may forget."""

    session_id: int
    epoch: int
    positions: Mapping[TopicPartition, FetchPosition]
    forgotten: Mapping[TopicPartition, UUID]


@dataclass(slots=True)
class FetcherSession:
    """With one leader. `known` is what it was told, by partition."""

    session_id: int = 0
    epoch: int = 0
    known: dict[TopicPartition, FetchPosition] = field(default_factory=dict)

    def request(self, wanted: Mapping[TopicPartition, FetchPosition]) -> SessionRequest:
        """The next fetch, of all `wanted`."""
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
        """The leader answered, in a session, or in none (0): then everything is to be said again."""
        if session_id == 0:
            self.reset()
        else:
            self.session_id = session_id

    def reset(self) -> None:
        """Begin anew: the leader does not know the session, or may not have heard of the last fetch."""
        self.session_id, self.epoch, self.known = 0, 0, {}
