"""The assignors of generation 1, whose members are threads `"{consumer id}-{number}"` (SPEC 4).

Each consumer runs the assignor on what it has read from the metadata tree, so equal inputs must give equal results.
"""

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, subscribers_by_topic
from odradek.assignors.range_assignor import assign_consecutively, range_share
from odradek.model import TopicPartition
from odradek.model.java_hash import java_hash


class ZookeeperRangeAssignor(Assignor):
    """`range` of Kafka 0.8, over threads."""

    name = "zookeeper-range"

    def assign(self, group: GroupSubscription) -> Assignment:
        return assign_consecutively(group, subscribers_by_topic(group), range_share)


class CeilingRangeAssignor(Assignor):
    """The rule of the first publication: each thread takes ceil(partitions / threads), so the last may get none."""

    name = "ceiling-range"

    def assign(self, group: GroupSubscription) -> Assignment:
        return assign_consecutively(group, subscribers_by_topic(group), _ceiling_share)


class ZookeeperRoundRobinAssignor(Assignor):
    """`roundrobin` of Kafka 0.8: all partitions, in the order of their hash codes, go to the threads in turn."""

    name = "zookeeper-roundrobin"

    def assign(self, group: GroupSubscription) -> Assignment:
        """Return the assignment. Raises `ValueError` if two topics have different threads."""
        threads_of = subscribers_by_topic(group)
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in sorted(group.members)}
        if not threads_of:
            return assignment
        (first, threads), *others = threads_of.items()
        for topic, some in others:
            if some != threads:
                raise ValueError(
                    f"zookeeper-roundrobin needs the same threads for every topic: {first} has {', '.join(threads)}, "
                    f"but {topic} has {', '.join(some)}; give every consumer of the group the same topics, and one "
                    "number of streams for all of them"
                )
        places = [TopicPartition(topic, number) for topic in threads_of for number in range(group.partitions[topic])]
        for turn, place in enumerate(sorted(places, key=_order)):
            assignment[threads[turn % len(threads)]].append(place)
        return assignment


def _order(place: TopicPartition) -> tuple[int, str, int]:
    return java_hash(f"[{place.topic},{place.partition}]"), place.topic, place.partition


def _ceiling_share(partitions: int, position: int, threads: int) -> range:
    each = -(-partitions // threads)
    return range(min(position * each, partitions), min((position + 1) * each, partitions))
