"""A leader's replication state: its followers' offsets, the high watermark and the ISR.

```
isr               the ISR as the controller last wrote it, at `partition_epoch`
maximal_isr       the ISR and the replica that a pending change would add; a record is committed when all have it
```
A change of the ISR is pending until the controller has decided. Until then `maximal_isr` counts, so that every member
has all committed records, whether the change is written or not (KIP-497, KIP-704).

    a follower has reached the high watermark and the start of this leader's epoch          it may join the ISR
    a follower has not been caught up for `replica.lag.time.max.ms`                         it must leave the ISR
"""

from collections.abc import Container, Iterator, Sequence
from typing import Final

from msgspec import Struct

from odradek.model.probes import probe

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -1


class RemoteReplica(Struct):
    """A follower's state, from its fetches. Times are ms of the leader's clock.

    `last_caught_up_ms` is the last time at which the follower had the leader's whole log.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    end_offset_at_last_fetch: int = UNKNOWN_OFFSET
    broker_epoch: int = -1
    is_refused: bool = False
    """Whether the controller refused to add it to the ISR; the high watermark does not wait for it then."""
    refused_until_ms: int = NEVER_MS
    """The time from which it may be proposed for the ISR again."""

    def fetched(
        self, offset: int, *, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch from `offset`: the follower has all records before `offset`.

        If it has all records up to the leader's end at its previous fetch, it was caught up at that time.
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
        """Return whether the follower is caught up, or was so within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


class IsrChange(Struct, frozen=True, kw_only=True):
    """An ISR change to send to the controller by AlterPartition.

    It is valid while the partition is at `leader_epoch` and `partition_epoch`. `broker_epochs` are the epochs with
    which the members fetched, in the order of `isr` (-1: the leader, or unknown), so that a member that restarted since
    is not added (KIP-903).
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class LeaderReplication:
    """The replication state of one partition, in one leader epoch of this broker.

    `partition_epoch` is the version of the partition's state, `start_offset` the first offset of the leader epoch.
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
                # An ISR member has `max_lag_ms` for its first fetch.
                caught_up_ms = now_ms if replica in self.isr else NEVER_MS
                self.remotes[replica] = RemoteReplica(last_caught_up_ms=caught_up_ms)

    def resume(self, before: "LeaderReplication") -> IsrChange | None:
        """Continue from the state with which this broker stopped leading, if it is of the same leader epoch.

        Unless this state has a newer partition epoch, take over the ISR and the pending change, and return the latter.
        """
        if before.leader_epoch != self.leader_epoch:
            return None
        self.start_offset = before.start_offset
        if before.partition_epoch < self.partition_epoch:
            return None
        probe("replication: a leader resumes its epoch after the fence")
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
        """Set the leader's log end offset, and `advance` the high watermark. Return whether it moved."""
        self.log_end_offset = log_end_offset
        return self.advance(now_ms=now_ms, max_lag_ms=max_lag_ms, min_isr=min_isr, live=live)

    def appended_alone(self, log_end_offset: int) -> bool:
        """Set the log end offset and high watermark of a leader without followers; return whether the latter rose."""
        assert not self.remotes, "followers have a say in what is committed"
        moved = log_end_offset > self.high_watermark
        self.log_end_offset = self.high_watermark = log_end_offset
        return moved

    def fetched(self, replica: int, offset: int, *, log_start_offset: int, now_ms: int, broker_epoch: int = -1) -> None:
        """Record a follower's fetch from `offset`; ignore unknown replicas and older registrations.

        `broker_epoch` is the epoch of the follower's registration; -1 (unknown) counts as older than any.
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

    def fetched_again(self, replica: int, offset: int, *, broker_epoch: int, now_ms: int) -> bool:
        """Record that an in-sync follower repeats its fetch from the leader's end. Return False if it is a new one."""
        remote = self.remotes.get(replica) if replica in self.isr else None
        if (
            remote is None
            or offset != self.high_watermark
            or offset != self.log_end_offset
            or offset != remote.log_end_offset
            or offset != remote.end_offset_at_last_fetch
            or broker_epoch != remote.broker_epoch
        ):
            return False
        remote.last_caught_up_ms = remote.last_fetch_ms = max(remote.last_fetch_ms, now_ms)
        return True

    def advance(self, *, now_ms: int, max_lag_ms: int, min_isr: int, live: Container[int] | None = None) -> bool:
        """Raise the high watermark to the lowest end offset of `maximal_isr`. Return whether it moved.

        A recently caught-up follower outside the ISR that has reached the high watermark counts too, so that it can
        join, unless it is not in `live` (None: unknown) or the controller refused it. While the ISR has fewer than
        `min_isr` members, the high watermark stays (KIP-966).
        """
        if len(self.isr) < min_isr:
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

    def low_watermark(self, log_start_offset: int, *, live: Container[int]) -> int:
        """Return the lowest log start offset of the leader and its live or in-sync followers (KIP-107)."""
        followers = (each for replica, each in self.remotes.items() if replica in live or replica in self.isr)
        return min((log_start_offset, *(each.log_start_offset for each in followers)))

    def _is_joining(self, remote: RemoteReplica, now_ms: int, max_lag_ms: int) -> bool:
        was_caught_up = remote.last_caught_up_ms != NEVER_MS and now_ms - remote.last_caught_up_ms <= max_lag_ms
        return was_caught_up and not remote.is_refused

    # ---- the in-sync set ----------------------------------------------------------------------------------------

    def propose_join(self, replica: int) -> IsrChange | None:
        """Return the change that adds a follower to the ISR; None if it cannot join now or a change is pending."""
        remote = self.remotes.get(replica)
        if self.pending is not None or remote is None or replica in self.isr:
            return None
        if remote.log_end_offset < max(self.high_watermark, self.start_offset):
            return None
        return self._propose((*self.isr, replica))

    def propose_leave(self, *, now_ms: int, max_lag_ms: int) -> IsrChange | None:
        """Return the change that removes lagging members; None if there are none or a change is pending."""
        if self.pending is not None:
            return None
        late = set(self.lagging(now_ms=now_ms, max_lag_ms=max_lag_ms))
        if not late:
            return None
        probe("replication: a lagging follower leaves the ISR")
        return self._propose(tuple(replica for replica in self.isr if replica not in late))

    def lagging(self, *, now_ms: int, max_lag_ms: int) -> Iterator[int]:
        """Yield the ISR members that have not been caught up for `max_lag_ms`."""
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
        """Record that the controller wrote `isr`. Return False if this is not newer than the known state."""
        if partition_epoch <= self.partition_epoch:
            probe("replication: an ISR change is accepted after a newer state")
            self._drop(change)
            return False
        self._adopt(isr, partition_epoch)
        return True

    def refused(self, change: IsrChange, *, until_ms: int = NEVER_MS) -> None:
        """Drop a refused change. Until the next ISR, the high watermark does not wait for the refused followers."""
        self._drop(change)
        for replica in change.isr:
            if replica in self.remotes and replica not in self.isr:
                remote = self.remotes[replica]
                probe("replication: the controller refuses a follower for the ISR")
                remote.is_refused, remote.refused_until_ms = True, until_ms

    def _drop(self, change: IsrChange) -> None:
        if self.pending is change:
            self.pending = None

    def _adopt(self, isr: Sequence[int], partition_epoch: int) -> None:
        self.isr, self.partition_epoch, self.pending = tuple(isr), partition_epoch, None
        for remote in self.remotes.values():
            remote.is_refused = False

    def updated(self, *, replicas: Sequence[int], isr: Sequence[int], partition_epoch: int, now_ms: int) -> bool:
        """Record a state of the same leader from the controller. Return False if it is not newer than the known one."""
        if partition_epoch <= self.partition_epoch:
            return False
        self._adopt(isr, partition_epoch)
        self.assigned(replicas, now_ms=now_ms)
        return True

    def assigned(self, replicas: Sequence[int], *, now_ms: int) -> None:
        """Set the replicas; replicas that stay keep their state."""
        others = [replica for replica in replicas if replica != self.broker_id]
        self.remotes = {replica: self.remotes.get(replica, RemoteReplica()) for replica in others}
        for replica in others:
            if replica in self.isr and self.remotes[replica].last_caught_up_ms == NEVER_MS:
                self.remotes[replica].last_caught_up_ms = now_ms
