"""`ClusterImage`, an immutable snapshot of the cluster's metadata: brokers, topics, partitions, configurations.

A change creates a new image, which shares the unchanged objects, so that `changed_topics` is cheap. A `StateChange` is
the next state of one partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.feature_node import FinalizedFeatures
from odradek.metadata.nodes import NO_LEADER, RECOVERED, RECOVERING, ClusterSecretNode, PartitionStateNode
from odradek.metadata.store import SetData
from odradek.model import TopicPartition
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.probes import transition
from odradek.security import Acls
from odradek.security.quotas import QuotaEntity

NO_CONTROLLER: Final = -1
UNNAMED: Final = UUID(int=0)
"""The topic id of a topic created by an old tool, until the controller assigns one."""


class BrokerImage(Struct, frozen=True, kw_only=True):
    """A registered broker. `epoch` increases with each registration; it is valid only for a live broker."""

    broker_id: int
    endpoints: tuple[ListenerAddress, ...]
    rack: str | None = None
    epoch: int = -1

    def endpoint(self, listener: str) -> ListenerAddress | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


class PartitionImage(Struct, frozen=True, kw_only=True):
    """A partition. `leader` is -1 if there is none; `leader_epoch` is -1 without a readable state."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    controller_epoch: int = -1
    state_version: int = -1
    """The version of the partition's state node; -1 if there is none."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_readable(self) -> bool:
        """Whether the partition has a valid state node."""
        return self.leader_epoch >= 0

    def with_state(self, state: PartitionStateNode, version: int) -> "PartitionImage":
        """Return the partition with the state in this version of its state node."""
        return replace(
            self,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=state.controller_epoch,
            leader_recovery_state=state.leader_recovery_state,
            state_version=version,
        )


class TopicImage(Struct, frozen=True, kw_only=True):
    """A topic: its id, its partitions by number, and its own configuration."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage]
    config: Mapping[str, str] = field(default_factory=dict)
    is_config_known: bool = True
    """False if the configuration node is broken and was never read before; then no records may be deleted."""
    version: int = -1
    """The version of the topic's node."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def has_same_config(self, other: "TopicImage") -> bool:
        return self.config == other.config and self.is_config_known == other.is_config_known

    def reusing(self, before: "TopicImage") -> "TopicImage":
        """Return this image, reusing objects of `before` that are equal, so that `is` comparisons stay cheap."""
        if self == before:
            return before
        known = before.partitions
        partitions = {
            number: each if (old := known.get(number)) is None or (old is not each and old != each) else old
            for number, each in self.partitions.items()
        }
        return replace(self, partitions=partitions)


class ClusterImage(Struct, frozen=True, kw_only=True):
    """The cluster. A topic that is being deleted is only in `deleting`."""

    cluster_id: str = ""
    secret: ClusterSecretNode = ClusterSecretNode(secret=b"", requires_proofs=False)
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configurations by broker id; the cluster-wide default has the key None."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configurations of consumer groups by group id."""
    user_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """SCRAM credentials and quotas by user name."""
    acls: Acls | None = None
    """The ACLs; None until they are read, and without an authorizer."""
    quota_configs: Mapping[QuotaEntity, Mapping[str, str]] = field(default_factory=dict)
    """Quotas by entity, beside other keys of its configuration."""
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    """The finalized levels of features."""

    def topic_by_id(self, topic_id: UUID | None) -> TopicImage | None:
        name = None if topic_id is None else self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def changed_topics(self, old: "ClusterImage") -> Iterator[str]:
        """Yield the names of topics that were created, deleted or changed since `old`, or deleted and recreated."""
        for name, topic in self.topics.items():
            before = old.topics.get(name)
            if before is not topic and before != topic:
                yield name
        for name in old.topics:
            if name not in self.topics:
                yield name

    def with_topics(self, changed: Mapping[str, TopicImage | None]) -> "ClusterImage":
        """Return an image with these topics replaced; None deletes a topic."""
        topics, names = dict(self.topics), dict(self.topic_names)
        for name, topic in changed.items():
            before = topics.pop(name, None)
            if before is not None:
                names.pop(before.topic_id, None)
            if topic is not None:
                topics[name] = topic if before is None else topic.reusing(before)
                if topic.topic_id != UNNAMED:
                    names[topic.topic_id] = name
        return replace(self, topics=topics, topic_names=names)

    def with_states(self, states: Mapping[TopicPartition, tuple[PartitionStateNode, int]]) -> "ClusterImage":
        """Return an image with these states, which have the versions of their nodes; unknown partitions are ignored."""
        changed: dict[str, dict[int, PartitionImage]] = {}
        for key, (state, version) in states.items():
            partition = self.partition(key)
            if partition is not None:
                changed.setdefault(key.topic, {})[key.partition] = partition.with_state(state, version)
        topics = {name: self.topics[name] for name in changed}
        return self.with_topics(
            {name: replace(each, partitions={**each.partitions, **changed[name]}) for name, each in topics.items()}
        )


class MetadataDelta(Struct, frozen=True, kw_only=True):
    """The difference of two successive images, computed once for all that follow the image."""

    old: ClusterImage
    new: ClusterImage
    topics: tuple[str, ...]
    """Topics that were created, deleted, recreated or changed."""
    brokers_changed: bool

    @classmethod
    def between(cls, old: ClusterImage, new: ClusterImage) -> "MetadataDelta":
        topics = () if old.topics is new.topics else tuple(new.changed_topics(old))
        return cls(old=old, new=new, topics=topics, brokers_changed=new.brokers != old.brokers)

    @property
    def topics_to_check(self) -> Iterable[str]:
        """All topics after a change of brokers, else the changed ones."""
        return self.new.topics if self.brokers_changed else self.topics


class StateChange(Struct, frozen=True, kw_only=True):
    """A partition's new state, and the version of the stored state that it replaces.

    `is_unclean` is true if the new leader was not in the ISR. Brokers in `joining` must be registered when the state
    is written.
    """

    partition: TopicPartition
    state: PartitionStateNode
    version: int
    is_unclean: bool = False
    joining: tuple[int, ...] = ()

    def operation(self) -> SetData:
        """Return the write, which fails if the stored state has another version."""
        return SetData(path=paths.partition_state(self.partition), data=self.state.encode(), version=self.version)


def new_leadership(
    key: TopicPartition, partition: PartitionImage, leader: int, isr: tuple[int, ...], *, controller_epoch: int
) -> StateChange:
    """Return the change to this leader and ISR in the next leader epoch, which fences requests with the old one.

    A leader that was not in the ISR may lack records, and is marked as recovering (KIP-704).
    """
    transition("partition", _state(partition.leader), _state(leader))
    is_unclean = leader in isr and leader not in partition.isr
    state = PartitionStateNode(
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=RECOVERING if is_unclean else partition.leader_recovery_state,
    )
    return StateChange(partition=key, state=state, version=partition.state_version, is_unclean=is_unclean)


def _state(leader: int) -> str:
    return "OFFLINE" if leader == NO_LEADER else "ONLINE"
