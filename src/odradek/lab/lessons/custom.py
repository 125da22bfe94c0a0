"""An assignor and a partitioner as a user writes them, for the lessons about custom ones, which show this code."""

from random import choice

from odradek.assignors import Assignment, Assignor, GroupSubscription
from odradek.model import TopicPartition
from odradek.partitioners import ClusterView


class RandomAssignor(Assignor):
    """Gives every partition to a random subscriber."""

    name = "random"

    def assign(self, group: GroupSubscription) -> Assignment:
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        for topic, count in group.partitions.items():
            readers = [member for member, wanted in group.members.items() if topic in wanted.topics]
            for number in range(count if readers else 0):
                assignment[choice(readers)].append(TopicPartition(topic, number))
        return assignment


class UrgentFirst:
    """Reserves partition 0 for records whose key begins with `urgent`."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        numbers = cluster.partitions_for_topic(topic)
        return 0 if (key or b"").startswith(b"urgent") else 1 + len(key or b"") % (len(numbers) - 1)
