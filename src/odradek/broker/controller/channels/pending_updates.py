"""The changes that one broker has not received. Changed partitions are kept by name, to send their latest state.

everything      the broker has registered, or the controller is new: send the full state
brokers         the set of live brokers has changed
partitions      the changed partitions, by topic
deleted         the deleted topics, with their last state
stops           the replicas that the broker has to stop
"""

from collections.abc import Mapping

from msgspec import Struct, field

from odradek.metadata.image import MetadataDelta, TopicImage
from odradek.model import TopicPartition


class Change(Struct, frozen=True, kw_only=True):
    """The differences between two images that have to be sent to brokers."""

    brokers: bool
    partitions: Mapping[str, frozenset[int]]
    deleted: Mapping[str, TopicImage]

    def __bool__(self) -> bool:
        return self.brokers or bool(self.partitions) or bool(self.deleted)


def compute_changes(delta: MetadataDelta) -> Change:
    """Return the differences between two images, without configurations, which brokers watch in the tree."""
    partitions: dict[str, frozenset[int]] = {}
    deleted: dict[str, TopicImage] = {}
    for name in delta.topics:
        before, after = delta.old.topics.get(name), delta.new.topics.get(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            deleted[name] = before
            before = None
        if after is not None:
            known = {} if before is None else before.partitions
            changed = frozenset(number for number, each in after.partitions.items() if known.get(number) != each)
            if changed:
                partitions[name] = changed
    return Change(brokers=delta.brokers_changed, partitions=partitions, deleted=deleted)


class Stop(Struct, frozen=True, kw_only=True):
    """A request to stop one replica; a broker that knows a newer leader epoch refuses it."""

    leader_epoch: int
    delete: bool


class PendingUpdates(Struct):
    """One broker's pending updates."""

    everything: bool = False
    brokers: bool = False
    partitions: dict[str, set[int]] = field(default_factory=dict)
    deleted: dict[str, TopicImage] = field(default_factory=dict)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.everything or self.brokers or bool(self.partitions) or bool(self.deleted) or bool(self.stops)

    def add(self, change: Change) -> None:
        self.brokers |= change.brokers
        for name, numbers in change.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        self.deleted.update(change.deleted)

    def take(self) -> "PendingUpdates":
        taken = PendingUpdates(self.everything, self.brokers, self.partitions, self.deleted, self.stops)
        self.everything = self.brokers = False
        self.partitions, self.deleted, self.stops = {}, {}, {}
        return taken

    def restore(self, taken: "PendingUpdates") -> None:
        """Add back updates that could not be sent; newer stops of the same replicas stay."""
        self.everything |= taken.everything
        self.brokers |= taken.brokers
        for name, numbers in taken.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        self.deleted = taken.deleted | self.deleted
        self.stops = taken.stops | self.stops
