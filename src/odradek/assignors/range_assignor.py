"""The assignor `range`: each subscriber of a topic gets consecutive partitions; the first subscribers get one more.

With P partitions and C subscribers, the first P % C subscribers get P // C + 1 partitions, the others P // C. Racks
change which partitions a member gets, never how many (`range_racks`).
"""

from collections.abc import Callable
from operator import itemgetter

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, sorted_members, subscribers_by_topic
from odradek.assignors.placement import LazyAssignment, Runs
from odradek.assignors.range_racks import assign_with_racks, racks_matter


class RangeAssignor(Assignor):
    """Kafka's RangeAssignor, rack-aware if racks are known (KIP-881)."""

    name = "range"

    def assign(self, group: GroupSubscription) -> Assignment:
        subscribers = subscribers_by_topic(group)
        has_racks = bool(group.replica_racks)
        if has_racks and any(racks_matter(group, topic, members) for topic, members in subscribers.items()):
            return assign_with_racks(group, subscribers)
        return assign_consecutively(group, subscribers, range_share)


Share = Callable[[int, int, int], range]
"""A function of (number of partitions, position of a member, number of members) that returns its partitions."""


def range_share(partitions: int, position: int, members: int) -> range:
    """Return the partition numbers of the member at `position` by the rule of `range`."""
    share, more = divmod(partitions, members)
    start = share * position + min(position, more)
    return range(start, start + share + (position < more))


def assign_consecutively(group: GroupSubscription, subscribers: dict[str, list[str]], share: Share) -> Assignment:
    """Assign each topic's partitions to its subscribers by `share`, in the subscribers' order."""
    alike = _alike(group, subscribers)

    def place(member: str) -> Runs:
        runs: list[tuple[str, range]] = []
        for positions, partitions, topics in alike:
            position = positions.get(member)
            numbers = range(0) if position is None else share(partitions, position, len(positions))
            if numbers:
                runs += [(topic, numbers) for topic in topics]
        return Runs(runs if len(alike) == 1 else sorted(runs, key=itemgetter(0)))

    return LazyAssignment(sorted_members(group.members), place)


def _alike(group: GroupSubscription, subscribers: dict[str, list[str]]) -> list[tuple[dict[str, int], int, list[str]]]:
    """Group topics with equal subscribers and partition counts: (positions by member, partition count, topics)."""
    found: dict[tuple[int, int], list[str]] = {}
    for topic, members in subscribers.items():
        found.setdefault((id(members), group.partitions[topic]), []).append(topic)
    positions = {
        key: {member: position for position, member in enumerate(members)}
        for key, members in {id(members): members for members in subscribers.values()}.items()
    }
    return [(positions[key], partitions, topics) for (key, partitions), topics in found.items()]
