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
        """Return the assignment. Raises `ValueError` if two topics, also such as do not exist, have different threads.

        The error has the words of Kafka 0.8.
        """
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in sorted(group.members)}
        threads_of: dict[str, list[str]] = {}
        for thread in assignment:
            for topic in sorted(set(group.members[thread].topics)):
                threads_of.setdefault(topic, []).append(thread)
        first = min(threads_of, default="")
        threads = threads_of.get(first, [])
        for topic, some in sorted(threads_of.items()):
            if some != threads:
                raise ValueError(
                    "Round-robin assignment is allowed only if all consumers in the group subscribe to the same "
                    "topics, AND if the stream counts across topics are identical for a given consumer instance.\n"
                    f"Topic {topic} has the following available consumer streams: [{', '.join(some)}]\n"
                    f"Topic {first} has the following available consumer streams: [{', '.join(threads)}]"
                )
        places = [TopicPartition(topic, at) for topic in threads_of for at in range(group.partitions.get(topic, 0))]

        def order(place: TopicPartition) -> tuple[int, str, int]:
            ids = group.partition_ids.get(place.topic)
            number = place.partition if ids is None else ids[place.partition]
            return java_hash(f"[{place.topic},{number}]"), place.topic, number

        for turn, place in enumerate(sorted(places, key=order)):
            assignment[threads[turn % len(threads)]].append(place)
        return assignment


def _ceiling_share(partitions: int, position: int, threads: int) -> range:
    each = -(-partitions // threads)
    return range(min(position * each, partitions), min((position + 1) * each, partitions))
