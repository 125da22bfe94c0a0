"""The rack-aware part of `range` (KIP-881): members get partitions with replicas in their rack, if balance allows.

Topics with equal partition counts and equal subscribers stay co-partitioned: a member gets the same partition numbers
of all of them, so its rack must match for all partitions with that number.
"""

from collections.abc import Callable, Sequence

from odradek.assignors.interface import Assignment, GroupSubscription, sorted_members
from odradek.model import TopicPartition


def racks_matter(group: GroupSubscription, topic: str, members: Sequence[str]) -> bool:
    """Return whether a member's rack has replicas of `topic`, and not all partitions are on the same racks."""
    member_racks = {rack for member in members if (rack := group.members[member].rack)}
    racks_of = [set(racks) for racks in group.replica_racks.get(topic, ())]
    all_racks = set().union(*racks_of)
    return not member_racks.isdisjoint(all_racks) and any(racks != all_racks for racks in racks_of)


def assign_with_racks(group: GroupSubscription, subscribers: dict[str, list[str]]) -> Assignment:
    """Assign partitions first by matching racks, the others in order; each member's partitions are sorted."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in sorted_members(group.members)}
    topics = [_Topic(group, topic, members) for topic, members in subscribers.items()]
    together: dict[tuple[int, int], list[_Topic]] = {}
    for topic in topics:
        together.setdefault((id(topic.members), topic.partition_count), []).append(topic)
    for alike in together.values():
        if len(alike) > 1:
            _match_together(alike, assignment)
        elif racks_matter(group, alike[0].name, alike[0].members):
            alike[0].fill(alike[0].rack_fits, assignment)
    for topic in topics:
        topic.fill(lambda _member, _number: True, assignment)
    for partitions in assignment.values():
        partitions.sort()
    return assignment


def _match_together(topics: list["_Topic"], assignment: dict[str, list[TopicPartition]]) -> None:
    waiting = list(topics[0].members)
    for number in range(topics[0].partition_count):
        member = next((m for m in waiting if all(t.room(m) > 0 and t.rack_fits(m, number) for t in topics)), None)
        if member is None:
            continue
        for topic in topics:
            topic.give(member, [number], assignment)
        if not any(topic.room(member) > 0 for topic in topics):
            waiting.remove(member)


class _Topic:
    """The unassigned partitions of one topic, and how many each member has got."""

    def __init__(self, group: GroupSubscription, name: str, members: list[str]) -> None:
        self.name = name
        self.members = members
        self.partition_count = group.partitions[name]
        self._racks = {member: group.members[member].rack for member in members}
        self._replica_racks = group.replica_racks.get(name, ())
        self._left = dict.fromkeys(range(self.partition_count))
        self._given = dict.fromkeys(members, 0)
        self._share, self._more = divmod(self.partition_count, len(members))

    def rack_fits(self, member: str, number: int) -> bool:
        """Return whether the member's rack has a replica of the partition; True for a member without a rack."""
        rack = self._racks[member]
        return not rack or (number < len(self._replica_racks) and rack in self._replica_racks[number])

    def room(self, member: str) -> int:
        """Return how many more partitions `member` may get."""
        return max(0, self._share + (self._more > 0) - self._given[member])

    def give(self, member: str, numbers: list[int], assignment: dict[str, list[TopicPartition]]) -> None:
        """Assign the unassigned partitions `numbers` to `member`."""
        assignment[member] += [TopicPartition(self.name, number) for number in numbers]
        self._given[member] += len(numbers)
        self._more -= self._given[member] > self._share
        for number in numbers:
            del self._left[number]

    def fill(self, may_take: Callable[[str, int], bool], assignment: dict[str, list[TopicPartition]]) -> None:
        """Assign to each member, in order, its first unassigned partitions that `may_take` allows, up to `room`."""
        for member in self.members:
            room = self.room(member)
            numbers = [number for number in self._left if may_take(member, number)][:room]
            if numbers:
                self.give(member, numbers, assignment)
