"""What one broker has yet to be told: names of what changed, so that whatever waits for long is told in its last state.

everything      the broker registered, or the controller is new
brokers         somebody came or went
partitions      by topic, those that changed
deleted            topics that are no more, as they were
stops           replicas that the broker shall stop having
"""

from collections.abc import Mapping

from odradek.metadata.image import ClusterImage, TopicImage
from odradek.model import TopicPartition
from odradek.model.values import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different between two images, for those who are told of it."""

    brokers: bool
    partitions: Mapping[str, frozenset[int]]
    deleted: Mapping[str, TopicImage]

    def __bool__(self) -> bool:
        return self.brokers or bool(self.partitions) or bool(self.deleted)


def compute_changes(old: ClusterImage, new: ClusterImage) -> Change:
    """What `new` has changed; configurations are not told, but watched by whoever needs them."""
    partitions: dict[str, frozenset[int]] = {}
    deleted: dict[str, TopicImage] = {}
    for name in new.changed_topics(old):
        before, after = old.topics.get(name), new.topics.get(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            deleted[name] = before
            before = None
        if after is not None:
            known = {} if before is None else before.partitions
            changed = frozenset(number for number, each in after.partitions.items() if known.get(number) != each)
            if changed:
                partitions[name] = changed
    return Change(brokers=new.brokers != old.brokers, partitions=partitions, deleted=deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A replica to be stopped; the broker does not if it knows a newer leader epoch than this."""

    leader_epoch: int
    delete: bool


@dataclass(slots=True)
class PendingUpdates:
    """One broker's. `take` empties it; what could not be told is put back and is told with what came meanwhile."""

    everything: bool = False
    brokers: bool = False
    partitions: dict[str, set[int]] = field(default_factory=dict)
    deleted: dict[str, TopicImage] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.everything or self.brokers or bool(self.partitions) or bool(self.deleted) or bool(self.stops)

    def add(self, change: Change) -> None:
        """Something changed."""
        self.brokers |= change.brokers
        for name, numbers in change.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        self.deleted.update(change.deleted)

    def take(self) -> "PendingUpdates":
        """What is in it; it is empty then."""
        taken = PendingUpdates(self.everything, self.brokers, self.partitions, self.deleted, self.stops)
        self.everything = self.brokers = False
        self.partitions, self.deleted, self.stops = {}, {}, {}
        return taken

    def restore(self, taken: "PendingUpdates") -> None:
        """Tell this again, with what came since; of two stops of a replica the later one holds."""
        self.everything |= taken.everything
        self.brokers |= taken.brokers
        for name, numbers in taken.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        self.deleted = taken.deleted | self.deleted
        self.stops = taken.stops | self.stops
