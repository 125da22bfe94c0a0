"""Fetch sessions (KIP-227): the broker stores a client's partitions, so that requests have only changes.

```
session id, epoch      meaning                                the response has
0, 0                   a full fetch; open a session           every partition, and the new session's id
0, -1                  a full fetch without a session         every partition
n, 0                   close session n; else as 0, 0          every partition
n, -1                  close session n; else as 0, -1         every partition
n, e > 0               the e-th fetch of session n            partitions with records, errors, or new offsets
```
Pure: time is the argument `now` in seconds, randomness an argument too. At most `slots` sessions exist; when all are
in use, a new session evicts one that was unused for two minutes, or a smaller one that is older than two minutes. All
sessions together have at most `most_partitions`: a client with too many partitions gets no session, and one that adds
too many loses its session.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct, field

from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import perturb
from odradek.protocol.messages.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch

MOST_PARTITIONS: Final = 8192
"""Limit of a consumer's session: each of its fetches looks at all its partitions. Other consumers send full fetches."""
_EVICTION_S: Final = 120.0
"""Kafka's minimum time before a session can be evicted."""

TopicKey = str | UUID
"""A topic as the client identifies it: by name, from version 13 on by id."""


class Waiting(Protocol):
    """A fetch that waits for records."""

    def overtaken(self) -> None:
        """Complete the fetch: the session's next fetch has arrived, and will get the records."""


class PartitionKey(NamedTuple):
    """A partition as the client identifies it."""

    topic: TopicKey
    partition: int


class FetchTarget(Struct, gc=False):
    """A client's fetch of one partition; -1 means unknown.

    `last_fetched_epoch` is the epoch of the client's last record, `follower_start_offset` the start of a follower's
    log. `high_watermark` and `log_start_offset` are those of the last response. `is_changed`: whether it
    was in a request since it was read.
    """

    key: PartitionKey
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    follower_start_offset: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    is_changed: bool = True


class FetchSession(Struct):
    """One client's partitions in the order of reading: partitions that had records move to the end."""

    session_id: int
    uses_topic_ids: bool
    created: float
    last_used: float
    next_epoch: int = 1
    targets: dict[PartitionKey, FetchTarget] = field(default_factory=dict)
    waiting: Waiting | None = None
    """The session's fetch that is not answered yet."""

    def update(self, wanted: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        for target in wanted:
            known = self.targets.get(target.key)
            if known is None:
                self.targets[target.key] = target
            else:
                if target.current_leader_epoch != known.current_leader_epoch:
                    known.high_watermark = -1  # the client may have ignored the last one, of another epoch
                known.fetch_offset = target.fetch_offset
                known.max_bytes = target.max_bytes
                known.current_leader_epoch = target.current_leader_epoch
                known.last_fetched_epoch = target.last_fetched_epoch
                known.follower_start_offset = target.follower_start_offset
                known.is_changed = True
        for key in forgotten:
            self.targets.pop(key, None)

    def served(self, key: PartitionKey) -> None:
        """Move a partition that had records to the end."""
        target = self.targets.pop(key, None)
        if target is not None:
            self.targets[key] = target


class FetchContext(NamedTuple):
    """The partitions of one Fetch. `session` is None without one; an `incremental` response has only changes."""

    session: FetchSession | None
    targets: Mapping[PartitionKey, FetchTarget]
    incremental: bool

    @property
    def session_id(self) -> int:
        """The session id of the response; 0 without a session."""
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """The sessions of one broker."""

    def __init__(self, *, slots: int, most_partitions: int, entropy: Random) -> None:
        self._slots = slots
        self._most_partitions = most_partitions
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0
        self.partition_count = 0
        """The number of partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[FetchTarget],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        now: float,
        most: int = MOST_PARTITIONS,
    ) -> FetchContext:
        """Return the partitions that a request fetches. `most`: limit of the partitions in its session.

        Raises `KafkaError` FETCH_SESSION_ID_NOT_FOUND (unknown, or too many partitions), INVALID_FETCH_SESSION_EPOCH
        (not the next) or FETCH_SESSION_TOPIC_ID_ERROR (ids and names mixed); the client then sends a full fetch.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.forget(session_id)
            targets = {target.key: target for target in wanted}
            if epoch == INITIAL_EPOCH and 0 < len(targets) <= most and self._make_room(len(targets), now):
                session = FetchSession(self._new_id(), uses_topic_ids, created=now, last_used=now, targets=targets)
                self._sessions[session.session_id] = session
                self.partition_count += len(targets)
                return FetchContext(session, targets, incremental=False)
            return FetchContext(None, targets, incremental=False)
        return self._continue(session_id, epoch, wanted, forgotten, uses_topic_ids=uses_topic_ids, now=now, most=most)

    def _continue(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[FetchTarget],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        now: float,
        most: int,
    ) -> FetchContext:
        if perturb("fetch: a session is evicted"):
            self.forget(session_id)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.next_epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.waiting is not None:
            session.waiting.overtaken()  # a client has one fetch of a session at a time
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        before = len(session.targets)
        session.update(wanted, forgotten)
        self.partition_count += len(session.targets) - before
        if self.partition_count > self._most_partitions or len(session.targets) > most:
            self.forget(session_id)
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if not session.targets:
            # A session without partitions ends; the client sees that by the session id 0.
            del self._sessions[session_id]
            return FetchContext(None, {}, incremental=False)
        session.last_used = now
        session.next_epoch = next_epoch(epoch)
        return FetchContext(session, session.targets, incremental=True)

    def _new_id(self) -> int:
        while True:
            session_id = self._entropy.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id

    def forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.targets)

    def _make_room(self, size: int, now: float) -> bool:
        """Return whether a session of `size` partitions may be opened, after evicting others if necessary."""
        if size > self._most_partitions:
            return False
        while self.partition_count + size > self._most_partitions:
            if not self._evict_unused(now):
                return False
        return len(self._sessions) < self._slots or self._evict_unused(now) or self._evict_smaller(size, now)

    def _evict_unused(self, now: float) -> bool:
        """Evict the session that was unused for longest, over two minutes; return whether one was evicted."""
        oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
        if oldest is None or now - oldest.last_used <= _EVICTION_S:
            return False
        self._evict(oldest)
        return True

    def _evict_smaller(self, size: int, now: float) -> bool:
        """Evict the smallest session over two minutes old, below `size` partitions; return whether one was evicted."""
        settled = [session for session in self._sessions.values() if now - session.created > _EVICTION_S]
        smallest = min(settled, key=lambda session: len(session.targets), default=None)
        if smallest is None or len(smallest.targets) >= size:
            return False
        self._evict(smallest)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.forget(session.session_id)
        self.evictions += 1
