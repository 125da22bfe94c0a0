"""CreateTopics: validation, placement, and the operations that create a topic.

One transaction writes the topic's node and its configuration. The states of its partitions are created afterwards
(`initialization`), as for a node that a tool wrote.
"""

from collections.abc import Collection, Generator, Iterable, Mapping
from uuid import UUID

from msgspec import Struct

from odradek.broker.controller.machine.placement import place_in_steps
from odradek.config import BrokerConfig, validate_topic_overrides
from odradek.metadata import paths
from odradek.metadata.cluster_load import ClusterLoad, Replicas
from odradek.metadata.image import BrokerImage
from odradek.metadata.new_topic import DEFAULT, NewTopic
from odradek.metadata.nodes import ConfigNode, TopicNode
from odradek.metadata.store import Create, Operation, SetData
from odradek.model import ConfigurationError, ErrorCode, KafkaError, validate_topic_name

MAX_PARTITIONS = 10_000
"""Limit of partitions created by one request, as in Kafka."""


class PartitionLimit:
    """Counts the partitions that one request creates, up to `MAX_PARTITIONS`."""

    def __init__(self) -> None:
        self._left = MAX_PARTITIONS

    def take(self, partitions: int) -> None:
        """Count new partitions. Raises `KafkaError` POLICY_VIOLATION if the request would create too many."""
        if partitions > self._left:
            message = f"a request creates at most {MAX_PARTITIONS:,} partitions"
            raise KafkaError(ErrorCode.policy_violation, message)
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
        super().__init__(ErrorCode.invalid_topic_exception, self._text(", ".join(sorted(others))))

    def without_names(self) -> KafkaError:
        """Return the error for a principal that may not describe all of the topics."""
        return KafkaError(self.code, self._text("an existing topic"))

    def _text(self, others: str) -> str:
        return f"the topic {self.name} collides with {others}: '.' and '_' count as one here"


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
            raise KafkaError(ErrorCode.topic_already_exists, f"the topic {name} exists")
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
            message = "a topic has replicas given by hand, or numbers of partitions and replicas, not both"
            raise KafkaError(ErrorCode.invalid_request, message)
        replicas: Mapping[int, Replicas] = _check_assignment(wanted.assignment, brokers, away)
        overrides = _check_config(wanted, config)
        room.take(len(replicas))
        load.add(replicas.values())
    else:
        partitions, replication_factor = _check_numbers(wanted, brokers, config)
        overrides = _check_config(wanted, config)
        racks = {broker_id: broker.rack for broker_id, broker in sorted(brokers.items())}
        room.take(partitions)
        replicas = yield from place_in_steps(
            racks, load, partitions=partitions, replication_factor=replication_factor, away=away
        )
    return TopicPlan(name=wanted.name, topic_id=topic_id, replicas=replicas, config=overrides)


def _check_numbers(wanted: NewTopic, brokers: Mapping[int, BrokerImage], config: BrokerConfig) -> tuple[int, int]:
    partitions = config.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions
    if partitions < 1:
        raise KafkaError(ErrorCode.invalid_partitions, f"a topic has at least 1 partition, not {partitions}")
    if partitions > MAX_PARTITIONS:
        message = f"a topic is created with at most {MAX_PARTITIONS:,} partitions, not {partitions:,}"
        raise KafkaError(ErrorCode.policy_violation, message)
    default = wanted.replication_factor == DEFAULT
    replication_factor = config.default_replication_factor if default else wanted.replication_factor
    if replication_factor < 1:
        message = f"the replication factor is at least 1, not {replication_factor}"
        raise KafkaError(ErrorCode.invalid_replication_factor, message)
    check_replication_factor(replication_factor, brokers)
    return partitions, replication_factor


def check_replication_factor(replication_factor: int, brokers: Collection[int]) -> None:
    """Raise `KafkaError` INVALID_REPLICATION_FACTOR if there are fewer registered `brokers`, alive or not."""
    if replication_factor > len(brokers):
        registered = f"the {len(brokers)} that are registered"
        message = f"the replication factor {replication_factor} needs more brokers than {registered}"
        raise KafkaError(ErrorCode.invalid_replication_factor, message)


def _check_assignment(
    assignment: Mapping[int, Replicas], brokers: Collection[int], away: Collection[int]
) -> Mapping[int, Replicas]:
    if len(assignment) > MAX_PARTITIONS:
        message = f"a topic is created with at most {MAX_PARTITIONS:,} partitions, not {len(assignment):,}"
        raise KafkaError(ErrorCode.policy_violation, message)
    if sorted(assignment) != list(range(len(assignment))):
        raise _bad_assignment("partitions are numbered from 0 without a gap")
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
        raise _bad_assignment(f"partition {partition} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"partition {partition} names a broker twice: {list(replicas)}")
    if len(replicas) != replication_factor:
        raise _bad_assignment(f"partition {partition} has another number of replicas than partition 0")
    unknown = [broker for broker in replicas if broker not in brokers]
    if unknown:
        raise _bad_assignment(f"partition {partition} names brokers that are not registered: {unknown}")
    if all(broker in away for broker in replicas):
        raise _bad_assignment(f"partition {partition} names no broker that could lead it: {list(replicas)} are away")


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)


def _check_config(wanted: NewTopic, config: BrokerConfig) -> dict[str, str]:
    try:
        return validate_topic_overrides(config, wanted.config)
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from None
