"""The assignor `roundrobin`: partitions, sorted by (topic, number), go to the members in turn.

Members that do not subscribe to a topic are skipped: each topic starts with its first subscriber after the member that
got the last partition of the previous topic.
"""

from bisect import bisect_left

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, sorted_members, subscribers_by_topic
from odradek.assignors.placement import LazyAssignment, Runs


class RoundRobinAssignor(Assignor):
    """Kafka's RoundRobinAssignor."""

    name = "roundrobin"

    def assign(self, group: GroupSubscription) -> Assignment:
        ring = sorted_members(group.members)
        places = {member: place for place, member in enumerate(ring)}
        subscribers = subscribers_by_topic(group)
        numbers_of = {
            key: [places[member] for member in members]
            for key, members in {id(members): members for members in subscribers.values()}.items()
        }
        entries: list[tuple[str, list[int], int]] = []
        place = 0
        for topic, members in subscribers.items():
            own_ring = numbers_of[id(members)]
            entry = bisect_left(own_ring, place) % len(own_ring)
            entries.append((topic, own_ring, entry))
            place = (own_ring[(entry + group.partitions[topic] - 1) % len(own_ring)] + 1) % len(ring)

        def runs_of(member: str) -> Runs:
            mine = places[member]
            runs = []
            for topic, own_ring, entry in entries:
                index = bisect_left(own_ring, mine)
                if index < len(own_ring) and own_ring[index] == mine:
                    first = (index - entry) % len(own_ring)
                    runs.append((topic, range(first, group.partitions[topic], len(own_ring))))
            return Runs(runs)

        return LazyAssignment(ring, runs_of)
