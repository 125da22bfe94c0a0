"""A picture of the cluster at one moment: brokers, topics, who leads what. Immutable; a change is a new picture.

Parts that did not change are the same objects in the new picture, so `changed_topics` is cheap.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.config import ListenerAddress
from odradek.metadata.nodes import NO_LEADER, RECOVERED
from odradek.model import TopicPartition
from odradek.model.values import dataclass, field

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__rebalances"})
NO_CONTROLLER: Final = -1
UNNAMED: Final = UUID(int=0)
"""The topic id of a topic that an old tool created, until the controller gives it one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A live broker. `epoch` rises with every registration of this id."""

    broker_id: int
    endpoints: tuple[ListenerAddress, ...]
    rack: str | None = None
    epoch: int = -1

    def endpoint(self, listener: str) -> ListenerAddress | None:
        """Where this broker answers for a listener's name, if it has one of that name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """A partition. `leader` is -1 while nobody leads; `leader_epoch` is -1 until the controller has decided once."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    controller_epoch: int = -1
    state_version: int = -1
    """The version of the state's node; -1 if there is none yet."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    @property
    def has_leader(self) -> bool:
        """Whether somebody leads."""
        return self.leader != NO_LEADER

    @property
    def is_readable(self) -> bool:
        """Whether there is a state, and it is not broken."""
        return self.leader_epoch >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic: its id, its partitions by number, and the configuration that was set for it alone."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]
    config: Mapping[str, str] = field(default_factory=dict)
    is_config_known: bool = True
    """False: what was set is broken and was never read, so that nothing of the topic's records may be thrown away."""
    version: int = -1
    """The version of the topic's node."""

    @property
    def is_internal(self) -> bool:
        """Whether the cluster keeps its own records there."""
        return self.name in INTERNAL_TOPICS

    def has_same_config(self, other: "TopicImage") -> bool:
        """Whether the same is set for both."""
        return self.config == other.config and self.is_config_known == other.is_config_known

    def following(self, before: "TopicImage") -> "TopicImage":
        """The same, of the objects that `before` is of where they are equal."""
        if self == before:
            return before
        known = before.partitions
        partitions = {
            number: each if (old := known.get(number)) is None or (old is not each and old != each) else old
            for number, each in self.partitions.items()
        }
        return replace(self, partitions=partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The cluster. Topics that are being deleted are in `deleting` and nowhere else."""

    cluster_id: str = ""
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)
    """What was set for brokers while they ran, by id; `None`: for all of them."""

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of an id, if there is one."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """A partition, if it and its topic are known."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def changed_topics(self, old: "ClusterImage") -> Iterator[str]:
        """Names of topics that are new here, gone, or not the same; a topic with another id was deleted in between."""
        for name, topic in self.topics.items():
            before = old.topics.get(name)
            if before is not topic and before != topic:
                yield name
        for name in old.topics:
            if name not in self.topics:
                yield name

    def with_topics(self, changed: Mapping[str, TopicImage | None]) -> "ClusterImage":
        """The same cluster after these topics changed; `None`: gone."""
        topics, names = dict(self.topics), dict(self.topic_names)
        for name, topic in changed.items():
            before = topics.pop(name, None)
            if before is not None:
                names.pop(before.topic_id, None)
            if topic is not None:
                topics[name] = topic if before is None else topic.following(before)
                if topic.topic_id != UNNAMED:
                    names[topic.topic_id] = name
        return replace(self, topics=topics, topic_names=names)
