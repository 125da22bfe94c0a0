"""The assignors `sticky`, `cooperative-sticky` and `uniform`: balance first, then the fewest moves.

They differ in the source of members' owned partitions, and in when a partition moves to another member. If two members
claim a partition, the one with the newer generation owns it; with equal generations, neither.
"""

import logging
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from odradek.assignors.interface import (
    NO_GENERATION,
    Assignment,
    Assignor,
    GroupSubscription,
    MemberSubscription,
    RebalanceProtocol,
    sorted_members,
)
from odradek.assignors.partition_index import IndexedPartitions, Numbers, PartitionIndex
from odradek.assignors.placement import LazyAssignment
from odradek.assignors.sticky_placement import NO_OWNER, PlacementInput, Racks, place, stable_order
from odradek.model import OdradekError, TopicPartition
from odradek.protocol.consumer_protocol import (
    StickyUserData,
    decode_generation_user_data,
    decode_sticky_user_data,
    encode_generation_user_data,
    encode_sticky_user_data,
)

_log = logging.getLogger("odradek.assignors")


class Claim(Struct, frozen=True, kw_only=True):
    """The partitions that a member reports as owned, and the generation in which it owned them."""

    partitions: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION


class StickyAssignor(Assignor):
    """Kafka's StickyAssignor, eager: members report in their user data the partitions that they had."""

    name = "sticky"

    def __init__(self) -> None:
        self._user_data: bytes | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return self._user_data

    def assign(self, group: GroupSubscription) -> Assignment:
        return _Round(group, [_eager_claim(member, each) for member, each in group.members.items()]).assignment()

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self._user_data = encode_sticky_user_data(StickyUserData(partitions=tuple(assignment), generation=generation))


class CooperativeStickyAssignor(Assignor):
    """Kafka's CooperativeStickyAssignor (KIP-429): a moved partition gets its new owner in the next generation."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return encode_generation_user_data(self._generation)

    def assign(self, group: GroupSubscription) -> Assignment:
        claims = [_cooperative_claim(member, each) for member, each in group.members.items()]
        return _Round(group, claims).assignment(withhold_moving=True)

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        self._generation = generation


class UniformAssignor(Assignor):
    """The broker's assignor `uniform` (KIP-848): owned partitions are the last target assignment."""

    name = "uniform"

    def assign(self, group: GroupSubscription) -> Assignment:
        return _Round(group, [_subscription_claim(each) for each in group.members.values()]).assignment()


def _subscription_claim(member: MemberSubscription) -> Claim:
    return Claim(partitions=member.owned, generation=member.generation)


def _eager_claim(member_id: str, member: MemberSubscription) -> Claim:
    if not member.user_data:
        return _subscription_claim(member)
    try:
        data = decode_sticky_user_data(member.user_data)
    except OdradekError as error:
        _log.warning("Member %s is treated as without owned partitions: %s", member_id, error)
        return Claim()
    return Claim(partitions=data.partitions, generation=data.generation)


def _cooperative_claim(member_id: str, member: MemberSubscription) -> Claim:
    """Return the claim of a subscription; before subscription version 2 the generation is in the user data."""
    if member.generation != NO_GENERATION or not member.user_data:
        return _subscription_claim(member)
    try:
        generation = decode_generation_user_data(member.user_data)
    except OdradekError as error:
        _log.warning("Member %s is treated as without a generation: %s", member_id, error)
        return _subscription_claim(member)
    return Claim(partitions=member.owned, generation=generation)


class _Round:
    """The computation of one assignment from one `Claim` per member, in the order of `group.members`."""

    def __init__(self, group: GroupSubscription, claims: Sequence[Claim]) -> None:
        self._group = group
        self._members = sorted_members(group.members)
        self._index = PartitionIndex(group.partitions)
        by_member = dict(zip(group.members, claims, strict=True))
        in_order = [by_member[member] for member in self._members]
        self._claimed, claimants = self._index.numbers_of([claim.partitions for claim in in_order])
        generations = np.array([claim.generation for claim in in_order], np.int64)
        self._previous = _owners_of(self._index.count, self._claimed, claimants, generations)

    def assignment(self, *, withhold_moving: bool = False) -> Assignment:
        """Return the assignment; `withhold_moving` leaves out partitions that another member must revoke first."""
        if not self._members or not self._index.count:
            return {member: [] for member in self._members}
        subscriptions, subscription_of_member = self._distinct_subscriptions()
        owners = place(
            PlacementInput(
                partition_counts=self._index.counts,
                subscriptions=subscriptions,
                subscription_of_member=subscription_of_member,
                previous_owners=self._previous,
                racks=self._racks(),
            )
        )
        if withhold_moving:
            is_claimed = np.zeros(self._index.count, np.bool_)
            is_claimed[self._claimed] = True
            owners[is_claimed & (owners != self._previous)] = NO_OWNER
        return self._by_member(owners)

    def _by_member(self, owners: Numbers) -> Assignment:
        count = len(self._members)
        rows = np.where(owners == NO_OWNER, count, owners)
        order = stable_order(rows, count)
        ends = np.cumsum(np.bincount(rows, minlength=count)).tolist()
        bounds = dict(zip(self._members, pairwise([0, *ends]), strict=False))

        def of_member(member: str) -> IndexedPartitions:
            start, end = bounds[member]
            return IndexedPartitions(self._index, order[start:end])

        return LazyAssignment(self._members, of_member)

    def _distinct_subscriptions(self) -> tuple[list[Numbers], Numbers]:
        """Return the distinct subscriptions as topic numbers, and for each member the position of its subscription."""
        positions: dict[frozenset[str], int] = {}
        seen: dict[int, int] = {}
        of_member = []
        for member in self._members:
            topics = self._group.members[member].topics
            position = seen.get(id(topics))
            if position is None:
                position = seen[id(topics)] = positions.setdefault(frozenset(topics), len(positions))
            of_member.append(position)
        known = self._index.number_of_topic
        numbers = [np.array([known[topic] for topic in topics if topic in known], np.int64) for topics in positions]
        return numbers, np.array(of_member, np.int64)

    def _racks(self) -> Racks | None:
        """Return the racks; None if there are none, or all members' racks have replicas of all partitions."""
        member_racks = [self._group.members[member].rack for member in self._members]
        used = {rack for rack in member_racks if rack}
        if not used or not self._group.replica_racks:
            return None
        sets: dict[frozenset[str], int] = {}
        set_of_partition = np.zeros(self._index.count, np.int64)
        nowhere = sets.setdefault(frozenset(), 0)
        for topic, start, count in zip(
            self._index.topics, self._index.starts.tolist(), self._index.counts.tolist(), strict=True
        ):
            racks = self._group.replica_racks.get(topic, ())
            numbers = [sets.setdefault(frozenset(used.intersection(each)), len(sets)) for each in racks[:count]]
            set_of_partition[start : start + count] = numbers + [nowhere] * (count - len(numbers))
        matches = np.array([[not rack or rack in racks for racks in sets] for rack in member_racks], np.bool_)
        if matches[:, np.unique(set_of_partition)].all():
            return None
        return Racks(set_of_partition=set_of_partition, matches=matches)


def _owners_of(count: int, claimed: Numbers, claimants: Numbers, generations: Numbers) -> Numbers:
    """Return each partition's previous owner; `NO_OWNER` if unclaimed or claimed twice in the newest generation."""
    owners = np.full(count, NO_OWNER, np.int64)
    owners[claimed] = claimants
    is_disputed = np.bincount(claimed, minlength=count)[claimed] > 1
    if is_disputed.any():
        pairs = np.unique(np.stack([claimed[is_disputed], claimants[is_disputed]]), axis=1)
        numbers, rivals = pairs[:, np.lexsort((-generations[pairs[1]], pairs[0]))]
        is_newest = np.concatenate(([True], numbers[1:] != numbers[:-1]))
        owners[numbers[is_newest]] = rivals[is_newest]
        is_tie = ~is_newest[1:] & is_newest[:-1] & (generations[rivals[1:]] == generations[rivals[:-1]])
        owners[numbers[1:][is_tie]] = NO_OWNER
    return owners
