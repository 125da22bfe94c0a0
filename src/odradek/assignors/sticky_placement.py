"""Chooses the owner of each partition for `sticky`, `cooperative-sticky` and `uniform`, on NumPy arrays.

Topics, partitions and members are numbers here. `balancing` computes how many partitions each member gets. Members with
too many release some, and members with too few take the free ones, so that each topic stays spread evenly.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from odradek.assignors.balancing import Groups, balanced_counts
from odradek.assignors.topic_spread import TopicSpread

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_OWNER = -1


class Racks(Struct, frozen=True, kw_only=True):
    """The racks of members and replicas (KIP-881). Partitions with equal replica racks share a rack set."""

    set_of_partition: Numbers
    """The number of each partition's rack set."""
    matches: Flags
    """For each member (row) and rack set (column): whether the member has no rack, or one of the set."""


class PlacementInput(Struct, frozen=True, kw_only=True):
    """The input of `place`. Partitions of all topics are numbered in the order of topics."""

    partition_counts: Numbers
    """The number of partitions of each topic."""
    subscriptions: Sequence[Numbers]
    """The distinct subscriptions, each as topic numbers."""
    subscription_of_member: Numbers
    """For each member the position of its subscription in `subscriptions`."""
    previous_owners: Numbers
    """The member that had each partition, or `NO_OWNER`."""
    racks: Racks | None = None


def place(given: PlacementInput) -> Numbers:
    """Return the owner of each partition; `NO_OWNER` if its topic has no subscriber."""
    member_count = len(given.subscription_of_member)
    subscribed_by_topic, group_of_topic = _topics_by_subscribers(given)
    group_of_partition = np.repeat(group_of_topic, given.partition_counts)
    matches = np.ones((member_count, subscribed_by_topic.shape[1]), np.bool_)
    if given.racks is not None:
        rack_sets = given.racks.matches.shape[1]
        pairs, group_of_partition = np.unique(
            group_of_partition * rack_sets + given.racks.set_of_partition, return_inverse=True
        )
        subscribed_by_topic = subscribed_by_topic[:, pairs // rack_sets]
        matches = given.racks.matches[:, pairs % rack_sets]
    owners = _still_subscribed(given.previous_owners, group_of_partition, subscribed_by_topic)
    group_count = subscribed_by_topic.shape[1]
    groups = Groups(
        totals=np.bincount(group_of_partition, minlength=group_count),
        kept=_counts_by_member(owners, group_of_partition, member_count, group_count),
        subscribed=subscribed_by_topic,
        matches=matches,
    )
    counts = balanced_counts(groups)
    spreads = _spreads(given.partition_counts, owners, group_of_partition, groups, counts)
    _release(owners, group_of_partition, groups.kept, counts, spreads)
    _give_out(owners, group_of_partition, counts - np.minimum(groups.kept, counts), spreads)
    return owners


def _topics_by_subscribers(given: PlacementInput) -> tuple[Flags, Numbers]:
    """Group topics by subscribers. Return which members (rows) subscribe to which groups, and each topic's group."""
    topic_count = len(given.partition_counts)
    by_subscription = np.zeros((len(given.subscriptions), topic_count), np.bool_)
    for row, topics in zip(by_subscription, given.subscriptions, strict=True):
        row[topics] = True
    groups: dict[bytes, int] = {}
    columns = np.ascontiguousarray(np.packbits(by_subscription, axis=0).T)
    group_of_topic = np.fromiter(
        (groups.setdefault(column.tobytes(), len(groups)) for column in columns), np.int64, topic_count
    )
    first_topics = np.unique(group_of_topic, return_index=True)[1]
    return by_subscription[:, first_topics][given.subscription_of_member], group_of_topic


def _still_subscribed(previous_owners: Numbers, group_of_partition: Numbers, subscribed: Flags) -> Numbers:
    """Return the previous owners, without those that no longer subscribe to the partition's group."""
    owners = previous_owners.copy()
    owned = np.flatnonzero(owners != NO_OWNER)
    owners[owned[~subscribed[owners[owned], group_of_partition[owned]]]] = NO_OWNER
    return owners


def _counts_by_member(owners: Numbers, group_of_partition: Numbers, member_count: int, group_count: int) -> Numbers:
    owned = owners != NO_OWNER
    cells = owners[owned] * group_count + group_of_partition[owned]
    return np.bincount(cells, minlength=member_count * group_count).reshape(member_count, group_count)


def _spreads(
    partition_counts: Numbers, owners: Numbers, group_of_partition: Numbers, groups: Groups, counts: Numbers
) -> dict[int, TopicSpread]:
    """Return the spreads of the groups in which members have to choose between topics.

    Without previous owners the partitions go out in turn, which is even.
    """
    takers = counts > groups.kept
    chosen = np.flatnonzero(takers.any(axis=0) & groups.kept.any(axis=0))
    if not len(chosen):
        return {}
    topic_starts = np.cumsum(partition_counts) - partition_counts
    if counts.shape[1] == 1:
        return {0: TopicSpread(topic_starts, None, owners, takers[:, 0])} if len(topic_starts) > 1 else {}
    order = stable_order(group_of_partition, counts.shape[1])
    ends = np.cumsum(groups.totals)[chosen]
    spreads = {}
    for group, start, end in zip(chosen.tolist(), ends - groups.totals[chosen], ends, strict=True):
        partitions = order[start:end]
        is_first = np.diff(np.searchsorted(topic_starts, partitions, side="right"), prepend=0) > 0
        if np.count_nonzero(is_first) > 1:
            spreads[group] = TopicSpread(partitions[is_first], partitions, owners[partitions], takers[:, group])
    return spreads


def _release(
    owners: Numbers,
    group_of_partition: Numbers,
    kept: Numbers,
    counts: Numbers,
    spreads: Mapping[int, TopicSpread],
) -> None:
    """Release, in place, partitions of each member that has more of a group than `counts` says: the last of a topic."""
    group_count = kept.shape[1]
    if not (kept > counts).any():
        return
    owned = np.flatnonzero(owners != NO_OWNER)
    cells = owners[owned] * group_count + group_of_partition[owned]
    has_too_many = (kept > counts).ravel()[cells]
    owned, cells = owned[has_too_many], cells[has_too_many]
    order = stable_order(cells, kept.size)
    owned, cells = owned[order], cells[order]
    starts = np.searchsorted(cells, cells, side="left")
    is_released = np.arange(len(cells)) - starts >= counts.ravel()[cells]
    of_group: dict[int, list[slice]] = {group: [] for group in spreads}
    if spreads:
        for start, end in pairwise([*np.unique(starts).tolist(), len(cells)]):
            of_group.get(int(cells[start]) % group_count, []).append(slice(start, end))
    for group, members in of_group.items():
        spreads[group].release([(owned[each], is_released[each]) for each in members])
    owners[owned[is_released]] = NO_OWNER


def _give_out(
    owners: Numbers, group_of_partition: Numbers, lacking: Numbers, spreads: Mapping[int, TopicSpread]
) -> None:
    """Give the partitions without an owner, in place, to the members that lack partitions of their group."""
    free = np.flatnonzero(owners == NO_OWNER)
    free = free[stable_order(group_of_partition[free], lacking.shape[1])]
    ends = np.cumsum(np.bincount(group_of_partition[free], minlength=lacking.shape[1]))
    start = 0
    for group, end in enumerate(ends.tolist()):
        members = np.flatnonzero(lacking[:, group])
        if len(members):
            amounts = lacking[members, group]
            if group in spreads:
                owners[free[start:end]] = spreads[group].takers_of(free[start:end], members, amounts)
            else:
                takers = np.repeat(members, amounts)
                turns = np.arange(len(takers)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
                owners[free[start:end]] = takers[stable_order(turns, int(amounts.max()))]
        start = end


def stable_order(keys: Numbers, bound: int) -> NDArray[np.intp]:
    """Return the indices that stably sort `keys`, which are 0 to `bound`; in linear time if `bound` fits 16 bits."""
    return np.argsort(keys.astype(np.uint16) if bound < 1 << 16 else keys, kind="stable")
