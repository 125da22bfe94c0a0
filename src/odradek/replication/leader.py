"""What the leader of a partition knows of its followers: how far each has come, and so what is committed.

```
isr               the in-sync set as the controller last wrote it, at `partition_epoch`
maximal_isr       the same, and whoever a pending change would add: what must have a record before it is committed
```
A change of the in-sync set is a wish until the controller has written it. Meanwhile the set is taken for the larger of
the two, so that whichever of them the controller goes by, a committed record is on every member (KIP-497, KIP-704).

    a follower has all that is committed, and all of this leader's epoch before it began    it may join
    a follower has not had all that there is for `replica.lag.time.max.ms`                  it must leave
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
    """The controller does not let it join, as it is about to stop: nothing waits for it."""

    def fetched(
        self, offset: int, *, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """It asks for what comes at `offset`, and so has everything before it.

        A fetch from where the leader ended at the fetch before says that it had everything then. `broker_epoch` is that
        of its registration, -1 if it doesn't say.
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
        """Whether it has everything, or had not so long ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A wish for another in-sync set, to be sent to the controller by AlterPartition.

    It holds if the partition is still at `leader_epoch` and `partition_epoch`. `broker_epochs` are the registrations by
    which the members have fetched, in their order, so that one that began anew since is not taken for the one that did
    (KIP-903); -1 for the leader, and where nothing is known.
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
                # A member of the set has the time of a whole lag to be heard of.
                caught_up_ms = now_ms if replica in self.isr else NEVER_MS
                self.remotes[replica] = RemoteReplica(last_caught_up_ms=caught_up_ms)

    def resume(self, before: "LeaderReplication") -> IsrChange | None:
        """Go on where this broker stopped leading in the same epoch; the change that was pending then, if it still is.

        The controller may have written more than this leader was created with: what it answered, or was just asked for.
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
        """The in-sync set, and who would be in it if the pending change is made."""
        if self.pending is None:
            return self.isr
        return (*self.isr, *(replica for replica in self.pending.isr if replica not in self.isr))

    # ---- what happens -------------------------------------------------------------------------------------------

    def appended(
        self, log_end_offset: int, *, now_ms: int, max_lag_ms: int, min_isr: int, live: Container[int] | None = None
    ) -> bool:
        """The leader's own log ends at `log_end_offset` now; whether the high watermark moved."""
        self.log_end_offset = log_end_offset
        return self.advance(now_ms=now_ms, max_lag_ms=max_lag_ms, min_isr=min_isr, live=live)

    def appended_alone(self, log_end_offset: int) -> bool:
        """The same where there are no followers: what the leader has is committed."""
        assert not self.remotes, "followers have a say in what is committed"
        moved = log_end_offset > self.high_watermark
        self.log_end_offset = self.high_watermark = log_end_offset
        return moved

    def fetched(self, replica: int, offset: int, *, log_start_offset: int, now_ms: int, broker_epoch: int = -1) -> None:
        """A follower fetches from `offset`. One that is no replica is not counted, nor one of an earlier registration.

        `broker_epoch` is that of its registration, -1 if it doesn't say.
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
        """Move the high watermark to what every member has; whether it moved. It never goes back.

        A follower that is about to join counts already, else it would never have all that is committed; but not one
        that can't: it is none of the `live` brokers (`None`: not known), or the controller refused it. While there are
        fewer than `min_isr` members nothing is committed (KIP-966); no set needs more than all replicas.
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
        """The change that adds a follower which has what it needs; None if it lacks something, or is a member."""
        remote = self.remotes.get(replica)
        if self.pending is not None or remote is None or replica in self.isr:
            return None
        if remote.log_end_offset < max(self.high_watermark, self.start_offset):
            return None
        return self._propose((*self.isr, replica))

    def propose_leave(self, *, now_ms: int, max_lag_ms: int) -> IsrChange | None:
        """The change that removes members which lag; None if there are none, or a change is pending."""
        if self.pending is not None:
            return None
        late = set(self.lagging(now_ms=now_ms, max_lag_ms=max_lag_ms))
        if not late:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in late))

    def lagging(self, *, now_ms: int, max_lag_ms: int) -> Iterator[int]:
        """Members that have not had everything for too long."""
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
        """The controller has written `isr`; whether this is still news: an answer to an older wish is not."""
        if partition_epoch <= self.partition_epoch:
            self._drop(change)
            return False
        self._adopt(isr, partition_epoch)
        return True

    def refused(self, change: IsrChange) -> None:
        """The controller did not write the change, and never will: who would have joined can't, for now."""
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
        """The controller says, unasked, what the partition looks like; whether this is news. The leader is the same."""
        if partition_epoch <= self.partition_epoch:
            return False
        self._adopt(isr, partition_epoch)
        self.assigned(replicas, now_ms=now_ms)
        return True

    def assigned(self, replicas: Sequence[int], *, now_ms: int) -> None:
        """The partition is to be on these replicas; those that were there before are known as they were."""
        others = [replica for replica in replicas if replica != self.broker_id]
        self.remotes = {replica: self.remotes.get(replica, RemoteReplica()) for replica in others}
        for replica in others:
            if replica in self.isr and self.remotes[replica].last_caught_up_ms == NEVER_MS:
                self.remotes[replica].last_caught_up_ms = now_ms
