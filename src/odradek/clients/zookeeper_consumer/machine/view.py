"""A consumer's view of its group in the metadata tree, and the partitions that it must claim."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription
from odradek.clients.zookeeper_consumer.machine.registration import ThreadCounts, thread_id
from odradek.model import TopicPartition


class GroupView(Struct, frozen=True, kw_only=True):
    """The group as one consumer read it; not a consistent snapshot, since nodes change between reads."""

    consumers: Mapping[str, ThreadCounts]
    """Subscriptions by consumer id."""
    partitions: Mapping[str, Sequence[int]]
    """The partition numbers, ascending, of each existing topic that a consumer of the group subscribes to."""
    topics: frozenset[str] = frozenset()
    """The names of all topics; empty unless a consumer has a filter."""
    has_brokers: bool = True

    def topics_by_thread(self, consumer_id: str, *, exclude_internal: bool) -> dict[str, list[str]]:
        """Return the topics of each thread of a consumer."""
        found: dict[str, list[str]] = {}
        counts = self.consumers[consumer_id].threads_of(self.topics, exclude_internal=exclude_internal)
        for topic, number in counts.items():
            for each in range(number):
                found.setdefault(thread_id(consumer_id, each), []).append(topic)
        return found


Ownership = Mapping[TopicPartition, str]
"""Thread ids by partition."""


def decide(view: GroupView, consumer_id: str, assignor: Assignor, *, exclude_internal: bool) -> Ownership:
    """Return the partitions that `assignor` gives to a consumer's threads. Raises `ValueError` if it refuses."""
    members = {
        thread: MemberSubscription(topics=topics)
        for name in view.consumers
        for thread, topics in view.topics_by_thread(name, exclude_internal=exclude_internal).items()
    }
    counts_of = {topic: len(numbers) for topic, numbers in view.partitions.items()}
    group = GroupSubscription(partitions=counts_of, members=members, partition_ids=view.partitions)
    assignment = assignor.assign(group)
    return {
        TopicPartition(topic, view.partitions[topic][position]): thread
        for thread in sorted(view.topics_by_thread(consumer_id, exclude_internal=exclude_internal))
        for topic, position in assignment[thread]
    }
