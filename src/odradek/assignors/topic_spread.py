"""Chooses the topics of the partitions that change hands within a group of `balancing`, so that each stays even.

Even means: the sum of squares of each member's partitions of each topic is small. Members release, then take, in order.
Each chooses the best for itself as if the members that take after it shared the rest equally. Members that release then
choose again, knowing what the others released.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_REPETITIONS: Final = 2
"""Then 99 % of random groups of up to ten members are as even as the fewest moves permit; without them, 65 %."""
_MAX_REPEATED: Final = 1 << 16
"""Limit of partitions for repetitions: one takes milliseconds, and larger groups are even without."""
_TIE: Final = 1e-6
"""A member repeats its choice only if it is better by this: another one, as good, may help the others."""


class TopicSpread:
    """The topics of one group of partitions, during one assignment."""

    def __init__(self, starts: Numbers, partitions: Numbers | None, owners: Numbers, is_taker: Flags) -> None:
        """Take the first partition of each topic, all partitions (None: 0, 1, …) with owners, and who gets more."""
        self._starts = starts
        self._taker_count = int(is_taker.sum())
        counted = np.flatnonzero(np.append(is_taker, True)[owners])  # owner -1, none, is the last
        owners, topics = owners[counted], self._topics_of(counted if partitions is None else partitions[counted])
        self._expected = self._per_topic(topics) / self._taker_count
        """By topic, the mean of the partitions that takers will have."""
        order = np.argsort(owners, kind="stable")
        self._kept_by, self._kept_topics = owners[order], topics[order]

    def release(self, members: Sequence[tuple[Numbers, Flags]]) -> None:
        """Replace, in place, the partitions that each member releases by as many: the last ones of chosen topics."""
        is_large = sum(len(owned) for owned, _ in members) > _MAX_REPEATED
        chosen = [self._release(*each, None) for each in members]
        for _ in range(0 if is_large or len(members) < 2 else _REPETITIONS):
            chosen = [self._release(*each, before) for each, before in zip(members, chosen, strict=True)]

    def _release(self, owned: Numbers, is_released: Flags, before: Numbers | None) -> Numbers:
        """Choose what one member releases; `before` is by topic what it chose in the last pass. Return it by topic."""
        topics = self._topics_of(owned)
        have = self._per_topic(topics)
        from_end = np.cumsum(have)[topics] - np.arange(1, len(topics) + 1)
        if before is not None:
            self._expected -= before / self._taker_count
        gains = (have - self._expected)[topics] - from_end * (1 + 1 / self._taker_count)
        if before is not None:
            gains -= _TIE * (from_end < before[topics])
        count = np.count_nonzero(is_released)
        chosen = np.argsort(-gains, kind="stable")[:count]
        is_released[:] = False
        is_released[chosen] = True
        now = self._per_topic(topics[chosen])
        self._expected += now / self._taker_count
        return now

    def takers_of(self, free: Numbers, members: Numbers, amounts: Numbers) -> Numbers:
        """Return the taker of each of the `free` partitions, which are ascending."""
        rest = self._per_topic(self._topics_of(free))
        nexts = np.cumsum(rest) - rest
        first = np.searchsorted(self._kept_by, 0)
        have_of_others = self._per_topic(self._kept_topics[first:])
        takers = np.empty(len(free), np.int64)
        bounds = np.searchsorted(self._kept_by, [members, members + 1]).T.tolist()
        others = len(members)
        for (start, end), member, amount in zip(bounds, members.tolist(), amounts.tolist(), strict=True):
            others -= 1
            have = self._per_topic(self._kept_topics[start:end])
            have_of_others -= have
            taken = _taken(have, have_of_others, rest, others, amount)
            takers[np.repeat(nexts, taken) + _turns(taken)] = member
            nexts += taken
            rest -= taken
        return takers

    def _topics_of(self, partitions: Numbers) -> Numbers:
        return np.searchsorted(self._starts, partitions, side="right") - 1

    def _per_topic(self, topics: Numbers) -> Numbers:
        return np.bincount(topics, minlength=len(self._starts))


def _taken(have: Numbers, have_of_others: Numbers, rest: Numbers, others: int, amount: int) -> Numbers:
    """Return how many partitions of each topic a member takes of the `rest`, which has at least `amount`."""
    if not others:
        return rest.copy()
    taken = np.zeros_like(rest)
    while amount:
        left = rest - taken
        units = np.minimum(left, 2 * left // (others + 1) + 1)  # twice its share: mostly enough for one round
        topics = np.repeat(np.arange(len(rest)), units)
        costs = (have + taken - (have_of_others + left) / others)[topics] + _turns(units) * (1 + 1 / others)
        added = np.bincount(topics[np.argsort(costs, kind="stable")[:amount]], minlength=len(rest))
        taken += added
        amount -= int(added.sum())
    return taken


def _turns(lengths: Numbers) -> Numbers:
    """Return 0, 1, … for each length."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
