"""`GroupView` is what a consumer has read of its group; `decide` returns the partitions that are its own."""

from collections.abc import Mapping, Sequence

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription
from odradek.groups.zookeeper.registration import ThreadCounts, thread_id
from odradek.model import TopicPartition
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as one consumer has read it; nodes may have changed between two reads."""

    consumers: Mapping[str, ThreadCounts]
    """Subscriptions by consumer id."""
    partitions: Mapping[str, Sequence[int]]
    """The partition numbers, ascending, of each topic that a consumer of the group subscribes to and that exists."""
    topics: frozenset[str] = frozenset()
    """The names of all topics; read only if a consumer has a filter."""
    has_brokers: bool = True


Ownership = Mapping[TopicPartition, str]
"""Thread ids by partition."""


def decide(view: GroupView, consumer_id: str, assignor: Assignor, *, exclude_internal: bool) -> Ownership:
    """Return the partitions that `assignor` gives to threads of a consumer. Raises what the assignor raises."""
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
