"""Looks at a live group: a rebalance as it goes, with its swim-lanes, and the past of the lag."""

from collections import deque
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.clients.admin.descriptions import GroupDescription
from odradek.lab.timeline import Mark, Timeline, TimelineBuilder
from odradek.model import TopicPartition

_MOVING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_LEAD_MS: Final = 1_000
"""The time before a rebalance that its picture shows."""
_TOGETHER_MS: Final = 5_000
"""A rebalance within this time after another one belongs to it, such as the second one of a cooperative group."""
_STALE_MS: Final = 15_000
"""After a longer time without a look, nothing is known of what has happened meanwhile."""
_MOST_CHANGES: Final = 100
_LAG_EVERY_MS: Final = 30_000
_MOST_LAGS: Final = 121
"""An hour of lags."""
_MOST_PARTITIONS: Final = 1_000
"""Beyond it, the past of the lag is kept by topic only."""

Owners = Mapping[TopicPartition, str]


def is_moving(group: GroupDescription) -> bool:
    behind = group.assignment_epoch is not None and any(m.epoch != group.assignment_epoch for m in group.members)
    return behind or group.group_state in _MOVING


class SeenRebalance(Struct, kw_only=True):
    """A rebalance as seen from outside; `to_ms` is None while it goes on."""

    from_ms: int
    began_earlier: bool = False
    """Whether the rebalance began before the first look at the group, which was at `from_ms`."""
    to_ms: int | None = None
    joined: dict[str, int]
    """The members that have come, and when."""
    left: dict[str, int]
    before: Owners
    moved: int = 0

    def sentence(self, unowned_ms: int) -> str:
        """Return what was seen of a rebalance that has ended."""
        assert self.to_ms is not None
        came = f"{len(self.joined):,} joined, {len(self.left):,} left"
        return (
            f"The rebalance took about {(self.to_ms - self.from_ms) / 1000:.1f} s (members: {came}; partitions moved: "
            f"{self.moved:,}), and partitions had no reader for about {unowned_ms / 1000:.1f} partition-seconds in all."
        )


class LagSample(Struct, frozen=True, kw_only=True):
    """The lags at a time, by topic and by partition."""

    at_ms: int
    topics: Mapping[str, int]
    partitions: Mapping[TopicPartition, int]


class GroupWatch:
    """The looks at one group."""

    def __init__(self) -> None:
        self.rebalance: SeenRebalance | None = None
        """The one that goes on, or the last one."""
        self.lags: deque[LagSample] = deque(maxlen=_MOST_LAGS)
        self._changes: deque[tuple[int, Owners]] = deque(maxlen=_MOST_CHANGES)
        self._members: frozenset[str] | None = None
        self._last_ms = 0
        self._protocol = ""

    def has_gap(self, at_ms: int) -> bool:
        """Return whether a look at `at_ms` is the first one, or the first one after a long time."""
        return at_ms - self._last_ms > _STALE_MS

    @property
    def goes_on(self) -> bool:
        return self.rebalance is not None and self.rebalance.to_ms is None

    def look(self, group: GroupDescription, at_ms: int) -> None:
        """Take a description of the group into account."""
        if self.has_gap(at_ms):
            self.rebalance, self._members = None, None
            self._changes.clear()
        members = frozenset(member.member_id for member in group.members)
        last = self._changes[-1][1] if self._changes else None
        owners = self._owners(group, last)
        is_first = self._members is None
        has_changed = not is_first and (members != self._members or owners != last)
        if (is_moving(group) or has_changed) and not self.goes_on:
            self._begin(self._last_ms if has_changed else at_ms, at_ms, last if last is not None else owners)
        if not self._changes or owners != last:
            self._changes.append((at_ms, owners))
        seen = self.rebalance
        if seen is not None and seen.to_ms is None:
            seen.began_earlier |= is_first and seen.from_ms == at_ms
            seen.joined |= dict.fromkeys(sorted(members - (self._members or members)), at_ms)
            seen.left |= dict.fromkeys(sorted((self._members or members) - members), at_ms)
            if not is_moving(group):
                seen.to_ms = at_ms
                seen.moved = sum(owners.get(each, owner) != owner for each, owner in seen.before.items())
        self._members, self._last_ms, self._protocol = members, at_ms, group.protocol or self._protocol
        self._note_lag(group, at_ms)

    def timeline(self, group_id: str) -> Timeline:
        """Return the owners during the rebalance, until now if it goes on."""
        seen = self.rebalance
        assert seen is not None
        builder = TimelineBuilder()
        start_ms, end_ms = seen.from_ms - _LEAD_MS, self._last_ms if seen.to_ms is None else seen.to_ms + _LEAD_MS
        for at_ms, owners in self._changes:
            if at_ms < end_ms:
                builder.note_all(owners, max(at_ms, start_ms))
        builder.close(max(end_ms, start_ms + 1), gaps_since_ms=0)
        to_ms = end_ms if seen.to_ms is None else seen.to_ms
        return Timeline(
            title=f"group {group_id}: owners of its partitions",
            start_ms=start_ms,
            end_ms=end_ms,
            spans=builder.spans(),
            marks=(Mark(from_ms=seen.from_ms, to_ms=to_ms, text="rebalance"),),
            is_wall_time=True,
        )

    def _begin(self, from_ms: int, at_ms: int, owners: Owners) -> None:
        seen = self.rebalance
        if seen is not None and seen.to_ms is not None and at_ms - seen.to_ms < _TOGETHER_MS:
            seen.to_ms = None
            return
        self.rebalance = SeenRebalance(from_ms=from_ms, joined={}, left={}, before=owners)
        self._changes.clear()
        self._changes.append((from_ms - _LEAD_MS, owners))

    def _owners(self, group: GroupDescription, last: Owners | None) -> Owners:
        """Return the owners; a cooperative group of the classic protocol, which hides them meanwhile, has the last."""
        is_hidden = group.assignment_epoch is None and is_moving(group)
        if is_hidden and last is not None and "cooperative" in self._protocol:
            return last
        return {each: member.member_id for member in group.members for each in member.assignment}

    def _note_lag(self, group: GroupDescription, at_ms: int) -> None:
        if self.lags and at_ms - self.lags[-1].at_ms < _LAG_EVERY_MS:
            return
        known = {TopicPartition(p.topic, p.partition): p.lag for p in group.partitions if p.lag is not None}
        topics: dict[str, int] = {}
        for partition, lag in known.items():
            topics[partition.topic] = topics.get(partition.topic, 0) + lag
        self.lags.append(
            LagSample(at_ms=at_ms, topics=topics, partitions=known if len(known) <= _MOST_PARTITIONS else {})
        )
