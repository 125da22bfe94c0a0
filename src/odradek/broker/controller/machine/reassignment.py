"""Partition reassignment (KIP-455): one step at a time, each decided from the tree alone.

The topic's node has these fields:

    partitions          RS, all replicas that have the records or are getting them; those of the target first
    adding_replicas     AR, the new replicas: RS - AR are the original ones
    removing_replicas   RR, the replicas to remove: RS - RR is the target, TRS
    AR and RR           a withdrawn new replica: the reassignment was cancelled, or got another target (Kafka stops
                        such replicas at once; if no other replica is in sync, the records are lost with them)

    begin     RS, AR and RR are written                            new replicas begin to fetch
    wait      until all of TRS are in the ISR
    move      a leader of TRS, and an ISR without RR               RR are neither read from nor written to
    finish    RR delete their logs, then RS = TRS is written       reassigned

`move` and `finish` also remove withdrawn replicas, as soon as another member of the ISR is alive. A step is one
transaction, which checks the versions of the nodes it was computed from and raises leader epochs, because replicas
accept only newer ones. Replicas are stopped *before* `finish` is written: afterwards the tree does not name them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from odradek.metadata import paths
from odradek.metadata.cluster_load import Replicas
from odradek.metadata.image import UNNAMED, ClusterImage, PartitionImage, StateChange, TopicImage, new_leadership
from odradek.metadata.nodes import ReassignPartitionsNode, TopicNode
from odradek.metadata.store import Delete, Operation, SetData
from odradek.model import ErrorCode, KafkaError, TopicPartition

STEP_PARTITIONS: Final = 200
"""Limit of partitions in one transaction, which has a write for each partition and one for the topic."""


class Assignment(Struct, frozen=True, kw_only=True):
    """A partition's replicas (RS), and which of them are being added (AR) and removed (RR)."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()

    @property
    def origin(self) -> Replicas:
        """The replicas before the reassignment, possibly in another order."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> Replicas:
        """The replicas after the reassignment (TRS)."""
        return _without(self.replicas, self.removing)

    @property
    def withdrawn(self) -> Replicas:
        """Added replicas that have to be removed again, because the target changed."""
        return tuple(replica for replica in self.adding if replica in self.removing)

    @property
    def in_progress(self) -> bool:
        return bool(self.adding or self.removing)

    def towards(self, target: Replicas) -> "Assignment":
        """Return the assignment with another target. Its present replicas stay until a later step removes them."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin, *self.adding)))
        return Assignment(replicas=replicas, adding=_without(replicas, origin), removing=_without(replicas, target))

    def without(self, replicas: Replicas) -> "Assignment":
        return Assignment(
            replicas=_without(self.replicas, replicas),
            adding=_without(self.adding, replicas),
            removing=_without(self.removing, replicas),
        )


class StopReplicas(Struct, frozen=True, kw_only=True):
    """Replicas to stop: `brokers` delete their replica unless they know a newer leader epoch."""

    partition: TopicPartition
    brokers: Replicas
    leader_epoch: int


class ReassignmentStep(Struct, frozen=True, kw_only=True):
    """One transaction of a reassignment. The live brokers in `stop` have deleted their replicas."""

    topic: str
    operations: tuple[Operation, ...]
    stop: tuple[StopReplicas, ...]


class ReassignmentPlan(Struct, frozen=True, kw_only=True):
    """The steps that begin reassignments, and the errors of partitions whose reassignment does not begin."""

    steps: tuple[ReassignmentStep, ...]
    errors: Mapping[TopicPartition, KafkaError]


def assignment_of(partition: PartitionImage) -> Assignment:
    return Assignment(
        replicas=partition.replicas, adding=partition.adding_replicas, removing=partition.removing_replicas
    )


def reassignments(
    image: ClusterImage, wanted: Mapping[str, Collection[int]] | None = None
) -> dict[TopicPartition, Assignment]:
    """Return the reassignments in progress, of all partitions or of `wanted` (partition numbers by topic)."""
    found = {}
    for name in image.topics if wanted is None else wanted:
        topic = image.topics.get(name)
        for number, partition in () if topic is None else topic.partitions.items():
            assignment = assignment_of(partition)
            if assignment.in_progress and (wanted is None or number in wanted[name]):
                found[TopicPartition(name, number)] = assignment
    return found


# ---- begin ----------------------------------------------------------------------------------------------------------


def plan_reassignments(
    image: ClusterImage,
    targets: Mapping[TopicPartition, Replicas | None],
    *,
    controller_epoch: int,
    allow_replication_factor_change: bool = True,
) -> ReassignmentPlan:
    """Plan the reassignment of partitions to these replicas; `None` cancels the reassignment in progress.

    An unchanged target needs no step. Errors are INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION,
    NO_REASSIGNMENT_IN_PROGRESS and, unless `allow_replication_factor_change` (KIP-860), INVALID_REPLICATION_FACTOR.
    """
    errors: dict[TopicPartition, KafkaError] = {}
    begun: dict[str, dict[int, Assignment]] = {}
    for key, target in targets.items():
        try:
            before = _assignment_in(image, key)
            after = _checked(key, before, target, image.brokers, any_factor=allow_replication_factor_change)
        except KafkaError as error:
            errors[key] = error.with_traceback(None)
        else:
            if after != before:
                begun.setdefault(key.topic, {})[key.partition] = after
    steps = [step for name in begun for step in _begin(image.topics[name], begun[name], controller_epoch)]
    return ReassignmentPlan(steps=tuple(steps), errors=errors)


def _assignment_in(image: ClusterImage, key: TopicPartition) -> Assignment:
    partition = image.partition(key)
    if partition is None:
        what = f"partition {key.topic}:{key.partition}" if key.topic in image.topics else f"a topic named {key.topic}"
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find {what}.")
    return assignment_of(partition)


def _checked(
    key: TopicPartition, before: Assignment, target: Replicas | None, live: Collection[int], *, any_factor: bool
) -> Assignment:
    """Return the assignment with a new target; `None` cancels the reassignment.

    Raises `KafkaError` if the target is invalid, or nothing is being reassigned.
    """
    where = f"{key.topic}-{key.partition}"
    if target is None:
        if not before.in_progress:
            raise KafkaError(ErrorCode.no_reassignment_in_progress)
        return before.towards(before.origin)
    problem = None
    if not target:
        problem = "The manual partition assignment includes an empty replica list."
    elif len(set(target)) != len(target):
        twice = next(broker for broker in target if target.count(broker) > 1)
        problem = f"The manual partition assignment includes the broker {twice} more than once."
    elif absent := [broker for broker in target if broker not in live and broker not in before.origin]:
        problem = f"brokers that {where} would have in addition are not alive: {absent}"
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_replica_assignment, problem)
    if not any_factor and len(target) != len(before.target):
        message = f"The replication factor is changed from {len(before.target)} to {len(target)}"
        raise KafkaError(ErrorCode.invalid_replication_factor, message)
    return before.towards(target)


def _begin(topic: TopicImage, begun: Mapping[int, Assignment], controller_epoch: int) -> Iterator[ReassignmentStep]:
    numbers = sorted(begun)
    written: dict[int, Assignment] = {}
    for place, start in enumerate(range(0, len(numbers), STEP_PARTITIONS)):
        now = numbers[start : start + STEP_PARTITIONS]
        written |= {number: begun[number] for number in now}
        states = [_renewed(topic, number, controller_epoch) for number in now if topic.partitions[number].is_readable]
        yield ReassignmentStep(
            topic=topic.name,
            operations=(
                _topic_operation(topic, written, version=topic.version + place),
                *(state.operation() for state in states),
            ),
            stop=(),
        )


# ---- wait, move, finish ---------------------------------------------------------------------------------------------


def advance(
    topic: TopicImage, live: Collection[int], controller_epoch: int, *, is_stopped: Callable[[StopReplicas], bool]
) -> ReassignmentStep | None:
    """Return the next step of the topic's reassignments, or `None` if there is none now.

    Replicas are removed once `is_stopped` says that their brokers have deleted them; other partitions do not wait for
    that. Call it after elections: it does not replace dead leaders of partitions that have to wait.
    """
    finished: dict[int, Assignment] = {}
    operations: list[Operation] = []
    stopped: list[StopReplicas] = []
    for number, partition in topic.partitions.items():
        assignment = assignment_of(partition)
        leaving = _leaving(assignment, partition, live) if assignment.in_progress else None
        if leaving is None:
            continue
        key = TopicPartition(topic.name, number)
        change = _move(key, partition, assignment, leaving, live, controller_epoch)
        if change is None:
            stop = StopReplicas(partition=key, brokers=leaving, leader_epoch=partition.leader_epoch)
            if leaving and not is_stopped(stop):
                continue
            change = _renewed(topic, number, controller_epoch)
            after = assignment.without(leaving)
            is_reassigned = not after.removing and set(after.replicas) <= set(partition.isr)
            finished[number] = Assignment(replicas=after.replicas) if is_reassigned else after
            if leaving:
                stopped.append(stop)
        operations.append(change.operation())
        if len(operations) == STEP_PARTITIONS:
            break
    if not operations:
        return None
    if finished:
        operations.insert(0, _topic_operation(topic, finished, version=topic.version))
    return ReassignmentStep(topic=topic.name, operations=tuple(operations), stop=tuple(stopped))


def _leaving(assignment: Assignment, partition: PartitionImage, live: Collection[int]) -> Replicas | None:
    """Return the replicas to remove now, possibly none; `None` if the partition has to wait."""
    if not partition.is_readable:
        return None
    in_sync = set(partition.isr)
    target = set(assignment.target)
    if target <= in_sync and not target.isdisjoint(live):
        return assignment.removing
    withdrawn = assignment.withdrawn
    if withdrawn and not in_sync.difference(withdrawn).isdisjoint(live):
        return withdrawn
    return None


def _move(
    key: TopicPartition,
    partition: PartitionImage,
    assignment: Assignment,
    leaving: Replicas,
    live: Collection[int],
    controller_epoch: int,
) -> StateChange | None:
    """Return the change that removes `leaving` from leadership and ISR; `None` if they have neither."""
    isr = _without(partition.isr, leaving)
    if isr == partition.isr and partition.leader not in leaving:
        return None
    leader = partition.leader
    if leader not in isr or leader not in live:
        # An ISR member is alive, as `_leaving` has checked. The target's order decides.
        leader = next(replica for replica in (*assignment.target, *isr) if replica in isr and replica in live)
    return new_leadership(key, partition, leader, isr, controller_epoch=controller_epoch)


def _renewed(topic: TopicImage, number: int, controller_epoch: int) -> StateChange:
    """Return a change of only the leader epoch, because replicas ignore a state without a newer one."""
    partition = topic.partitions[number]
    key = TopicPartition(topic.name, number)
    return new_leadership(key, partition, partition.leader, partition.isr, controller_epoch=controller_epoch)


def _topic_operation(topic: TopicImage, changed: Mapping[int, Assignment], *, version: int) -> SetData:
    assignments = {
        number: changed.get(number) or assignment_of(partition) for number, partition in topic.partitions.items()
    }
    node = TopicNode(
        topic_id=None if topic.topic_id == UNNAMED else topic.topic_id,
        replicas={number: each.replicas for number, each in assignments.items()},
        adding_replicas={number: each.adding for number, each in assignments.items() if each.adding},
        removing_replicas={number: each.removing for number, each in assignments.items() if each.removing},
    )
    return SetData(path=paths.topic(topic.name), data=node.encode(), version=version)


def _without(replicas: Replicas, others: Collection[int]) -> Replicas:
    return tuple(replica for replica in replicas if replica not in others)


class ReassignPartitionsRequest(Struct, frozen=True, kw_only=True):
    """Reassignments that a tool requests by writing `/admin/reassign_partitions`, and the node's version.

    An entry stays until its partition has the requested replicas, so that old tools see the progress; the node is
    deleted with its last entry. AlterPartitionReassignments for a partition removes the partition's entry first.
    """

    node: ReassignPartitionsNode
    version: int

    def to_begin(self, image: ClusterImage) -> dict[TopicPartition, Replicas]:
        """Return the targets of entries that are not begun, for `plan_reassignments`."""
        return {key: target for key, target in self.node.replicas.items() if not self._is_begun(image, key, target)}

    def completed(self, image: ClusterImage) -> list[TopicPartition]:
        """Return the entries whose partitions have the requested replicas."""
        return [
            key
            for key, target in self.node.replicas.items()
            if self._is_begun(image, key, target)
            and (partition := image.partition(key)) is not None
            and not assignment_of(partition).in_progress
        ]

    def without(self, keys: Collection[TopicPartition]) -> SetData | Delete | None:
        """Return the operation that removes these entries, or the node if none is left; `None` if nothing changes."""
        left = {key: target for key, target in self.node.replicas.items() if key not in keys}
        if not left:
            return Delete(path=paths.REASSIGN_PARTITIONS, version=self.version)
        if len(left) == len(self.node.replicas):
            return None
        data = ReassignPartitionsNode(replicas=left).encode()
        return SetData(path=paths.REASSIGN_PARTITIONS, data=data, version=self.version)

    def _is_begun(self, image: ClusterImage, key: TopicPartition, target: Replicas) -> bool:
        partition = image.partition(key)
        return partition is not None and assignment_of(partition).target == target
