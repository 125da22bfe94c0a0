"""CreateTopics and CreatePartitions: validation, placement, and the operations that create topics and partitions.

One transaction writes a topic's node and its configuration, or the node's new partitions. The states of partitions are
created afterwards, as for a node that a tool wrote.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from odradek.broker.controller.machine.placement import Placement
from odradek.config.broker import BrokerConfig
from odradek.config.topic import validate_topic_overrides
from odradek.metadata import paths
from odradek.metadata.cluster_load import ClusterLoad, Replicas
from odradek.metadata.image import UNNAMED, BrokerImage, PartitionImage, TopicImage
from odradek.metadata.new_topic import DEFAULT, NewTopic
from odradek.metadata.nodes import NO_LEADER, ConfigNode, PartitionStateNode, TopicNode
from odradek.metadata.store import Create, Operation, SetData
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, validate_topic_name
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.model.probes import transition

MAX_PARTITIONS = 10_000
"""Limit of partitions created by one request, as in Kafka."""
_MANUAL = "The manual partition assignment includes"
_TOO_MANY = "Excessively large number of partitions per request."


class PartitionLimit:
    """Counts the partitions that one request creates, up to `MAX_PARTITIONS`."""

    def __init__(self) -> None:
        self._left = MAX_PARTITIONS

    def take(self, partitions: int) -> None:
        """Count new partitions. Raises `KafkaError` POLICY_VIOLATION if the request would create too many."""
        if partitions > self._left:
            raise KafkaError(ErrorCode.policy_violation, _TOO_MANY)
        self._left -= partitions


class TopicPlan(Struct, frozen=True, kw_only=True):
    """A valid topic to create, with its replicas by partition."""

    name: str
    topic_id: UUID
    replicas: Mapping[int, Replicas]
    config: Mapping[str, str]

    def operations(self, *, config_exists: bool) -> list[Operation]:
        """Return the operations that create the topic; `config_exists` is whether it has a configuration node."""
        path, data = paths.topic_config(self.name), ConfigNode(config=self.config).encode()
        return [
            SetData(path=path, data=data) if config_exists else Create(path=path, data=data),
            Create(
                path=paths.topic(self.name), data=TopicNode(replicas=self.replicas, topic_id=self.topic_id).encode()
            ),
        ]


class TopicCreation(Struct, frozen=True, kw_only=True):
    """The result of a `NewTopic`: a `plan` if it was created (or only validated), or an `error`."""

    name: str
    plan: TopicPlan | None = None
    error: KafkaError | None = None


class TopicCollisionError(KafkaError):
    """A topic's name collides with the topics `others`; its text names them."""

    def __init__(self, name: str, others: Collection[str]) -> None:
        self.name = name
        self.others = others
        text = f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}"
        super().__init__(ErrorCode.invalid_topic_exception, text)

    def without_names(self) -> KafkaError:
        """Return the error for a principal that may not describe all of the topics."""
        return KafkaError(self.code, f"Topic '{self.name}' collides with existing topic")


class ExistingTopicNames:
    """The existing topic names, and Kafka's rule for collisions: metrics write both `.` and `_` as `_`.

    Lookups take constant time.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._flat: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        if name not in self._names:
            self._names.add(name)
            self._flat.setdefault(name.replace(".", "_"), []).append(name)

    def check(self, name: str) -> None:
        """Raise `KafkaError` if the name is invalid, taken, or collides with another."""
        validate_topic_name(name)
        if name in self._names:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        if collisions := self._flat.get(name.replace(".", "_")):
            raise TopicCollisionError(name, collisions)


def plan_topic(
    wanted: NewTopic,
    *,
    topic_id: UUID,
    existing: ExistingTopicNames,
    brokers: Mapping[int, BrokerImage],
    away: Collection[int] = (),
    load: ClusterLoad,
    config: BrokerConfig,
    room: PartitionLimit,
) -> Generator[int, None, TopicPlan]:
    """Validate a topic, place its replicas in steps, and add them to `load`. Raises `KafkaError` for an invalid one.

    `existing` has all topic names, including topics being deleted; `brokers` are all registered brokers, `away` those
    of them that cannot lead now.
    """
    existing.check(wanted.name)
    if wanted.assignment:
        if (wanted.num_partitions, wanted.replication_factor) != (DEFAULT, DEFAULT):
            message = "A manual partition assignment was specified, but %s was not set to -1."
            name = "numPartitions" if wanted.replication_factor == DEFAULT else "replication factor"
            raise KafkaError(ErrorCode.invalid_request, message % name)
        replicas: Mapping[int, Replicas] = _check_assignment(wanted.assignment, brokers, away)
        overrides = _check_config(wanted, config)
        room.take(len(replicas))
        load.add(replicas.values())
    else:
        partitions, replication_factor = _check_numbers(wanted, brokers, config)
        overrides = _check_config(wanted, config)
        racks = {broker_id: broker.rack for broker_id, broker in sorted(brokers.items())}
        room.take(partitions)
        placement = Placement(racks, load, replication_factor=replication_factor, away=away)
        replicas = yield from _place(placement, range(partitions))
    return TopicPlan(name=wanted.name, topic_id=topic_id, replicas=replicas, config=overrides)


def _place(placement: Placement, numbers: Iterable[int]) -> Generator[int, None, dict[int, Replicas]]:
    placed = {}
    for number in numbers:
        placed[number] = placement.place()
        yield placement.weight
    return placed


def _check_numbers(wanted: NewTopic, brokers: Mapping[int, BrokerImage], config: BrokerConfig) -> tuple[int, int]:
    partitions = config.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions
    if partitions < 1:
        message = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.invalid_partitions, message)
    if partitions > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.policy_violation, _TOO_MANY)
    default = wanted.replication_factor == DEFAULT
    replication_factor = config.default_replication_factor if default else wanted.replication_factor
    if replication_factor < 1:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.invalid_replication_factor, message)
    check_replication_factor(replication_factor, brokers)
    return partitions, replication_factor


def check_replication_factor(replication_factor: int, brokers: Collection[int]) -> None:
    """Raise `KafkaError` INVALID_REPLICATION_FACTOR if there are fewer registered `brokers`, alive or not."""
    if replication_factor > len(brokers):
        message = (
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
        )
        raise KafkaError(ErrorCode.invalid_replication_factor, message)


def _check_assignment(
    assignment: Mapping[int, Replicas], brokers: Collection[int], away: Collection[int]
) -> Mapping[int, Replicas]:
    if len(assignment) > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.policy_violation, _TOO_MANY)
    if sorted(assignment) != list(range(len(assignment))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    for partition, replicas in assignment.items():
        check_replicas(partition, replicas, len(assignment[0]), brokers, away)
    return {partition: tuple(assignment[partition]) for partition in sorted(assignment)}


def check_replicas(
    partition: int, replicas: Replicas, replication_factor: int, brokers: Collection[int], away: Collection[int]
) -> None:
    """Raise `KafkaError` INVALID_REPLICA_ASSIGNMENT unless `replicas` are valid for a partition.

    Valid are `replication_factor` distinct registered `brokers`, not all of them `away`.
    """
    if not replicas:
        raise _bad_assignment(f"{_MANUAL} an empty replica list.")
    seen: set[int] = set()
    for broker in replicas:
        if broker in seen:
            raise _bad_assignment(f"{_MANUAL} the broker {broker} more than once.")
        if broker not in brokers:
            raise _bad_assignment(f"{_MANUAL} broker {broker}, but no such broker is registered.")
        seen.add(broker)
    if len(replicas) != replication_factor:
        raise _bad_assignment(
            f"{_MANUAL} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if all(broker in away for broker in replicas):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)


def _check_config(wanted: NewTopic, config: BrokerConfig) -> dict[str, str]:
    try:
        return validate_topic_overrides(config, wanted.config)
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None


_FIXED = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Unlike Kafka, their number of partitions stays: coordinators would not find records by the hash of a name."""


class NewPartitions(Struct, frozen=True, kw_only=True):
    """A request for `count` partitions in all. `assignment` lists the replicas of the new ones; if None, place them."""

    topic: str
    count: int
    assignment: Sequence[Replicas] | None = None


def plan_partitions(
    wanted: NewPartitions,
    topic: TopicImage | None,
    *,
    brokers: Mapping[int, BrokerImage],
    away: Collection[int] = (),
    load: ClusterLoad,
    room: PartitionLimit,
) -> Generator[int, None, dict[int, Replicas]]:
    """Place each new partition in steps, and add it to `load`. Raises `KafkaError` for an invalid request.

    The replication factor is that of the topic's first partition, after its reassignment if one is in progress.
    `brokers` are all registered brokers, and `away` those of them that cannot lead now.
    """
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    if topic.name in _FIXED:
        reason = "coordinators are found by a hash modulo this number"
        message = f"the number of partitions of {topic.name} can't change: {reason}"
        raise KafkaError(ErrorCode.invalid_partitions, message)
    first_new = max(topic.partitions, default=-1) + 1
    added = wanted.count - first_new
    if added <= 0:
        message = f"Topic already has {first_new} partition(s)."
        if added:
            count = f"currently has {first_new} partition(s); {wanted.count} would not be an increase."
            message = f"The topic {topic.name} {count}"
        raise KafkaError(ErrorCode.invalid_partitions, message)
    if added > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.policy_violation, _TOO_MANY)
    existing = [replicas for number in sorted(topic.partitions) if (replicas := _final_replicas(topic, number))]
    replication_factor = len(existing[0]) if existing else 1
    if wanted.assignment is not None:
        if len(wanted.assignment) != added:
            given = len(wanted.assignment)
            message = (
                f"Attempted to add {added} additional partition(s), but only {given} assignment(s) were specified."
            )
            raise KafkaError(ErrorCode.invalid_replica_assignment, message)
        assignment = {first_new + place: tuple(replicas) for place, replicas in enumerate(wanted.assignment)}
        for number, replicas in assignment.items():
            check_replicas(number, replicas, replication_factor, brokers, away)
        room.take(added)
        load.add(assignment.values())
        return assignment
    check_replication_factor(replication_factor, brokers)
    racks = {broker_id: broker.rack for broker_id, broker in sorted(brokers.items())}
    room.take(added)
    placement = Placement(racks, load, replication_factor=replication_factor, existing=existing, away=away)
    return (yield from _place(placement, range(first_new, first_new + added)))


def _final_replicas(topic: TopicImage, number: int) -> Replicas:
    partition = topic.partitions[number]
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def needs_initialization(topic: TopicImage) -> bool:
    """Return whether a partition of the topic has no state, or the topic has no id."""
    return topic.topic_id == UNNAMED or any(each.state_version == -1 for each in topic.partitions.values())


def initial_state(partition: PartitionImage, live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """Return the initial state: the first live replica leads, and the live replicas are the ISR.

    Without a live replica there is no leader, and the preferred replica is the ISR.
    """
    alive = tuple(replica for replica in partition.replicas if replica in live)
    return PartitionStateNode(
        leader=alive[0] if alive else NO_LEADER,
        leader_epoch=0,
        isr=alive or partition.replicas[:1],
        controller_epoch=controller_epoch,
    )


def initial_operations(
    topic: TopicImage, live: Collection[int], controller_epoch: int, existing: Collection[str]
) -> Iterator[list[Operation]]:
    """Yield the operations that create missing states, one list per partition; a list belongs in one transaction.

    `existing` are the paths that exist below the topic's node.
    """
    parents = [paths.partitions(topic.name)]
    for number, partition in sorted(topic.partitions.items()):
        key = TopicPartition(topic.name, number)
        if partition.state_version != -1:
            continue
        group: list[Operation] = [
            Create(path=path) for path in (*parents, paths.partition(key)) if path not in existing
        ]
        parents = []
        state = initial_state(partition, live, controller_epoch)
        transition("partition", "NEW", "OFFLINE" if state.leader == NO_LEADER else "ONLINE")
        yield [*group, Create(path=paths.partition_state(key), data=state.encode())]
