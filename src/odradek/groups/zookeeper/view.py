"""A consumer's view of its group in the metadata tree, and the partitions that it must claim."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription
from odradek.groups.zookeeper.registration import ThreadCounts, thread_id
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


Ownership = Mapping[TopicPartition, str]
"""Thread ids by partition."""


def decide(view: GroupView, consumer_id: str, assignor: Assignor, *, exclude_internal: bool) -> Ownership:
    """Return the partitions that `assignor` gives to a consumer's threads. Raises `ValueError` if it refuses."""
    topics_of: dict[str, list[str]] = {}
    own: set[str] = set()
    for name, counts in view.consumers.items():
        for topic, number in counts.threads_of(view.topics, exclude_internal=exclude_internal).items():
            for each in range(number):
                thread = thread_id(name, each)
                topics_of.setdefault(thread, []).append(topic)
                if name == consumer_id:
                    own.add(thread)
    members = {thread: MemberSubscription(topics=topics) for thread, topics in topics_of.items()}
    counts_of = {topic: len(numbers) for topic, numbers in view.partitions.items()}
    assignment = assignor.assign(GroupSubscription(partitions=counts_of, members=members))
    return {
        TopicPartition(topic, view.partitions[topic][position]): thread
        for thread in sorted(own)
        for topic, position in assignment[thread]
    }
