"""A leader's state of its followers: their positions, and so the high watermark and the ISR.

```
isr               the ISR as the controller last wrote it, at `partition_epoch`
maximal_isr       the ISR and the replica that a pending change would add: all must have a record to commit it
```
A change of the ISR is pending until the controller has written it. Meanwhile the larger of both sets counts, so that a
committed record is on every member, whichever of them the controller uses (KIP-497, KIP-704).

    a follower has reached the high watermark and the start of this leader's epoch          it may join
    a follower has not been caught up for `replica.lag.time.max.ms`                         it must leave
"""

from collections.abc import Container, Iterator, Sequence
from typing import Final

from odradek.model.values import dataclass

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -1


@dataclass(slots=True)
class RemoteReplica:
    """A follower as its fetches show it. Times are ms of the leader's clock.

    `last_caught_up_ms` is the last time at which it had everything that the leader had.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    end_offset_at_last_fetch: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    is_refused: bool = False
    """The controller refuses it as a member because it is shutting down, so commits do not wait for it."""

    def fetched(
        self, offset: int, *, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch from `offset`: the follower has everything before it.

        A fetch from the leader's end at the previous fetch shows that it was caught up then. `broker_epoch` is that of
        its registration, -1 if unknown.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, *, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether it is caught up, or was less than `max_lag_ms` ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """An ISR change to send to the controller by AlterPartition.

    It is valid while the partition is at `leader_epoch` and `partition_epoch`. `broker_epochs` are the registrations
    with which the members fetched, in their order, so that a member that restarted since is not added (KIP-903); -1
    for the leader and where unknown.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class LeaderReplication:
    """One partition, while this broker leads it in one leader epoch.

    `partition_epoch` is the version of the partition's state. `start_offset` is where this leader's epoch begins.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        leader_epoch: int,
        partition_epoch: int,
        start_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.start_offset = start_offset
        self.isr = tuple(isr)
        self.pending: IsrChange | None = None
        self.log_end_offset = start_offset
        self.high_watermark = high_watermark
        self.remotes: dict[int, RemoteReplica] = {}
        for replica in replicas:
            if replica != broker_id:
                # A member gets a whole lag time for its first fetch.
                caught_up_ms = now_ms if replica in self.isr else NEVER_MS
                self.remotes[replica] = RemoteReplica(last_caught_up_ms=caught_up_ms)

    def resume(self, before: "LeaderReplication") -> IsrChange | None:
        """Continue from the state in which this broker stopped leading in the same epoch.

        Return the change still pending. The controller may have written more than this leader was created with:
        responses, or requests still in flight.
        """
        if before.leader_epoch != self.leader_epoch:
            return None
        self.start_offset = before.start_offset
        if before.partition_epoch < self.partition_epoch:
            return None
        self.isr, self.partition_epoch, self.pending = before.isr, before.partition_epoch, before.pending
        return self.pending

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, and the replica that the pending change would add."""
        if self.pending is None:
            return self.isr
        return (*self.isr, *(replica for replica in self.pending.isr if replica not in self.isr))

    # ---- what happens -------------------------------------------------------------------------------------------

    def appended(
        self, log_end_offset: int, *, now_ms: int, max_lag_ms: int, min_isr: int, live: Container[int] | None = None
    ) -> bool:
        """Record that the leader's log ends at `log_end_offset`. Return whether the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self.advance(now_ms=now_ms, max_lag_ms=max_lag_ms, min_isr=min_isr, live=live)

    def appended_alone(self, log_end_offset: int) -> bool:
        """Record the leader's log end without followers: it is the high watermark. Return whether that moved."""
        assert not self.remotes, "followers have a say in what is committed"
        moved = log_end_offset > self.high_watermark
        self.log_end_offset = self.high_watermark = log_end_offset
        return moved

    def fetched(self, replica: int, offset: int, *, log_start_offset: int, now_ms: int, broker_epoch: int = -1) -> None:
        """Record a follower's fetch from `offset`, unless it is not a replica or of an earlier registration.

        `broker_epoch` is that of its registration, -1 if unknown.
        """
        remote = self.remotes.get(replica)
        if remote is not None and broker_epoch >= remote.broker_epoch:
            remote.fetched(
                offset,
                log_start_offset=log_start_offset,
                broker_epoch=broker_epoch,
                leader_end_offset=self.log_end_offset,
                now_ms=now_ms,
            )

    def advance(self, *, now_ms: int, max_lag_ms: int, min_isr: int, live: Container[int] | None = None) -> bool:
        """Raise the high watermark to what every member has. Return whether it moved; it never decreases.

        A follower that is about to join counts already, else it would never reach the high watermark; but not one that
        cannot join: it is not in `live` (`None`: unknown), or the controller refused it. Below `min_isr` members
        nothing is committed (KIP-966); no set needs more than all replicas.
        """
        if len(self.isr) < min(min_isr, len(self.remotes) + 1):
            return False
        members = self.maximal_isr
        committed = self.log_end_offset
        for replica, remote in self.remotes.items():
            end = remote.log_end_offset
            if end < committed and (
                replica in members
                or (
                    end >= self.high_watermark
                    and (live is None or replica in live)
                    and self._is_joining(remote, now_ms, max_lag_ms)
                )
            ):
                committed = end
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _is_joining(self, remote: RemoteReplica, now_ms: int, max_lag_ms: int) -> bool:
        was_caught_up = remote.last_caught_up_ms != NEVER_MS and now_ms - remote.last_caught_up_ms <= max_lag_ms
        return was_caught_up and not remote.is_refused

    # ---- the in-sync set ----------------------------------------------------------------------------------------

    def propose_join(self, replica: int) -> IsrChange | None:
        """Return the change that adds a follower, or None if it is a member or has not caught up."""
        remote = self.remotes.get(replica)
        if self.pending is not None or remote is None or replica in self.isr:
            return None
        if remote.log_end_offset < max(self.high_watermark, self.start_offset):
            return None
        return self._propose((*self.isr, replica))

    def propose_leave(self, *, now_ms: int, max_lag_ms: int) -> IsrChange | None:
        """Return the change that removes lagging members, or None if there are none or a change is pending."""
        if self.pending is not None:
            return None
        late = set(self.lagging(now_ms=now_ms, max_lag_ms=max_lag_ms))
        if not late:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in late))

    def lagging(self, *, now_ms: int, max_lag_ms: int) -> Iterator[int]:
        """Return the members that have not been caught up for too long."""
        for replica in self.isr:
            remote = self.remotes.get(replica)
            if remote is not None and not remote.is_caught_up(
                self.log_end_offset, now_ms=now_ms, max_lag_ms=max_lag_ms
            ):
                yield replica

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        remotes = self.remotes
        self.pending = IsrChange(
            isr=isr,
            broker_epochs=tuple(remotes[each].broker_epoch if each in remotes else -1 for each in isr),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        return self.pending

    def accepted(self, change: IsrChange, *, isr: Sequence[int], partition_epoch: int) -> bool:
        """Record that the controller wrote `isr`. Return whether it is new: the response to an older request is not."""
        if partition_epoch <= self.partition_epoch:
            self._drop(change)
            return False
        self._adopt(isr, partition_epoch)
        return True

    def refused(self, change: IsrChange) -> None:
        """Record that the controller refused the change: the replica cannot join for now."""
        self._drop(change)
        for replica in change.isr:
            if replica in self.remotes and replica not in self.isr:
                self.remotes[replica].is_refused = True

    def _drop(self, change: IsrChange) -> None:
        if self.pending is change:
            self.pending = None

    def _adopt(self, isr: Sequence[int], partition_epoch: int) -> None:
        self.isr, self.partition_epoch, self.pending = tuple(isr), partition_epoch, None
        for remote in self.remotes.values():
            remote.is_refused = False

    def updated(self, *, replicas: Sequence[int], isr: Sequence[int], partition_epoch: int, now_ms: int) -> bool:
        """Record a partition state that the controller sent. Return whether it is new. The leader is the same."""
        if partition_epoch <= self.partition_epoch:
            return False
        self._adopt(isr, partition_epoch)
        self.assigned(replicas, now_ms=now_ms)
        return True

    def assigned(self, replicas: Sequence[int], *, now_ms: int) -> None:
        """Set the replicas; the known state of those that stay is kept."""
        others = [replica for replica in replicas if replica != self.broker_id]
        self.remotes = {replica: self.remotes.get(replica, RemoteReplica()) for replica in others}
        for replica in others:
            if replica in self.isr and self.remotes[replica].last_caught_up_ms == NEVER_MS:
                self.remotes[replica].last_caught_up_ms = now_ms
