"""Writes the decisions of `broker.controller.machine` to the tree, within one controller epoch.

Every write includes a check of `/controller_epoch`, which fails after another election. Work on many nodes is written
in transactions of about `STEP_OPERATIONS` operations, and may end after any of them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from odradek.broker.cluster.metadata.controller_election import ControllerMovedError, Election
from odradek.broker.controller.controller_channel_manager import ControllerChannelManager
from odradek.broker.controller.machine.elections import ElectionContext, elections
from odradek.broker.controller.machine.reassignment import StopReplicas
from odradek.broker.controller.machine.topic_creation import TopicPlan, initial_operations
from odradek.broker.controller.machine.topic_deletion import deletion_operations
from odradek.broker.counters import BrokerCounters
from odradek.broker.turns import cooperatively
from odradek.metadata import paths
from odradek.metadata.cluster_load import Replicas
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, StateChange, TopicImage
from odradek.metadata.nodes import NO_LEADER, TopicNode
from odradek.metadata.reading import BrokenNodes, read_subtree, read_topics
from odradek.metadata.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, Operation, Result, SetData
from odradek.model import ErrorCode, KafkaError, TopicPartition, first_names
from odradek.model.probes import probe
from odradek.runtime import Entropy, new_id
from odradek.runtime.rate_limited_log import RateLimitedLog


class ControllerContext:
    """The context of one controller epoch. `wake_tasks` is called when the errors of replicas have changed."""

    def __init__(self, *, wake_tasks: Callable[[], None]) -> None:
        self._wake_tasks = wake_tasks
        self._shutting_down: dict[int, int] = {}
        self._offline: dict[int, tuple[int, set[TopicPartition]]] = {}
        self._full: dict[int, tuple[int, set[TopicPartition]]] = {}
        self._changed: set[str] = set()

    @property
    def shutting_down(self) -> Set[int]:
        """Brokers that have requested a controlled shutdown."""
        return self._shutting_down.keys()

    def for_elections(self, controller_epoch: int) -> ElectionContext:
        offline, full = (
            {broker_id: partitions for broker_id, (_, partitions) in entries.items()}
            for entries in (self._offline, self._full)
        )
        return ElectionContext(
            controller_epoch=controller_epoch, shutting_down=self.shutting_down, offline=offline, full=full
        )

    def add_shutting_down(self, broker: BrokerImage) -> None:
        """Add a broker that shuts down, for its current registration."""
        self._shutting_down[broker.broker_id] = broker.epoch

    def update_replicas(self, broker: BrokerImage, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Record the errors of a broker's replicas (`ReplicaManager.replica_error`)."""
        changed = set[TopicPartition]()
        counts = []
        for code, entries in (
            (ErrorCode.kafka_storage_error, self._offline),
            (ErrorCode.ineligible_replica, self._full),
        ):
            epoch, known = entries.pop(broker.broker_id, (broker.epoch, set[TopicPartition]()))
            if epoch != broker.epoch:
                known = set()
            after = known.difference(errors).union(key for key, error in errors.items() if error is code)
            if after:
                entries[broker.broker_id] = broker.epoch, after
            changed |= known ^ after
            counts.append(len(after))
        if not changed:
            return
        self._changed.update(key.topic for key in changed)
        self._wake_tasks()
        offline, full = counts
        if offline:
            _log.warning("broker %d can't use the logs of %d partitions", broker.broker_id, offline)
        if full:
            _log.warning("broker %d has no disk space for %d partitions", broker.broker_id, full)
        if not offline and not full:
            _log.info("broker %d can use all its logs again", broker.broker_id)

    def take_changed(self) -> set[str]:
        """Return the topics with replicas whose errors have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Remove entries of brokers that are no longer registered, or have registered again."""
        epochs = {broker_id: broker.epoch for broker_id, broker in brokers.items()}
        for known in [each for each, epoch in self._shutting_down.items() if epochs.get(each) != epoch]:
            del self._shutting_down[known]
        for entries in (self._offline, self._full):
            for known in [each for each, (epoch, _) in entries.items() if epochs.get(each) != epoch]:
                del entries[known]


STEP_OPERATIONS: Final = 500
"""Operations per transaction: far below ZooKeeper's limit of 1 MiB, and a few milliseconds in SQLite."""
_MOST_TOPIC_LINES: Final = 100
"""Log lines per minute about created topics, and as many about deleted ones."""
_log = logging.getLogger("odradek.broker")


class ControllerEpoch:
    """One controller epoch. The methods raise `ControllerMovedError` after its end, and the store's errors."""

    def __init__(
        self,
        election: Election,
        entropy: Entropy,
        context: ControllerContext,
        channels: ControllerChannelManager,
        counters: BrokerCounters,
    ) -> None:
        self.number = election.epoch
        self.view = election.view
        self.context = context
        self.channels = channels
        """The channels to the other brokers."""
        self._store = election.view.store
        self._entropy = entropy
        self._counters = counters
        self._topic_log = RateLimitedLog(_log, most_lines=_MOST_TOPIC_LINES)
        self._epoch_check = Check(path=paths.CONTROLLER_EPOCH, version=election.epoch_version)
        self.writes = 0
        """The number of transactions so far, also of those that failed."""

    def eligible_leaders(self) -> Set[int]:
        """Return the live brokers that are not shutting down, or all live brokers if all of them are."""
        live = self.view.image.brokers.keys()
        return live - self.context.shutting_down or live

    def election_context(self) -> ElectionContext:
        return self.context.for_elections(self.number)

    async def create_topic(self, plan: TopicPlan) -> None:
        """Write a new topic and its configuration. Raises `KafkaError` if the topic was created meanwhile."""
        config = await self._store.get(paths.topic_config(plan.name))
        try:
            await self.write(plan.operations(config_exists=config is not None))
        except NodeExists:
            raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{plan.name}' already exists.") from None
        self._topic_log.log(
            "created", logging.INFO, "Created topic %s with %d partitions, replication factor %d, configuration %s",
            plan.name, len(plan.replicas), len(next(iter(plan.replicas.values()))), dict(plan.config),
        )  # fmt: skip

    async def add_partitions(self, name: str, added: Mapping[int, Replicas]) -> None:
        """Write new partitions into a topic's node. Raises `KafkaError` if the node has changed or is gone."""
        path = paths.topic(name)
        node = await self._store.get(path)
        if node is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
        topic = TopicNode.decode(path, node.data)
        changed = KafkaError(ErrorCode.invalid_partitions, f"topic {name} was changed concurrently")
        if topic.replicas.keys() & added.keys():
            raise changed
        data = replace(topic, replicas={**topic.replicas, **added}).encode()
        try:
            await self.write([SetData(path=path, data=data, version=node.version)])
        except (BadVersion, NoNode):
            raise changed from None

    async def initialize(self, topic: TopicImage, *, topic_id: UUID | None = None) -> None:
        """Write missing initial partition states and, if the topic has no id, `topic_id` or a new one."""
        existing = frozenset(await read_subtree(self._store, paths.topic(topic.name)))
        if topic.topic_id == UNNAMED:
            await self._set_topic_id(topic.name, topic_id or new_id(self._entropy))
        await self._write_steps(initial_operations(topic, self.eligible_leaders(), self.number, existing))

    async def elect_leaders(self, topics: Iterable[TopicImage]) -> None:
        """Elect leaders where brokers or logs failed or returned."""
        image, decided = self.view.image, list[StateChange]()
        async for topic in cooperatively(topics):
            decided += elections(image, [topic], self.view.config, self.election_context())
        await self.change_states(decided)
        _log_elections(image, decided)
        for election in decided:
            _log.debug("%s: leader %d, isr %s", election.partition, election.state.leader, election.state.isr)

    async def change_states(self, changes: Iterable[StateChange]) -> None:
        """Write state changes. Raises `BadVersion` or `NoNode` if a state was changed or deleted concurrently."""
        decided = list(changes)
        await self._write_steps([change.operation()] for change in decided)
        self._counters.unclean_elections += sum(change.is_unclean for change in decided)

    async def try_change_states(self, changes: Iterable[StateChange]) -> dict[TopicPartition, KafkaError]:
        """Write ISR changes; skip partitions whose states were changed concurrently, or whose joining brokers are gone.

        A broker that is gone may have found itself in no ISR, and register soon with a log that lacks records.
        Return the errors of the skipped partitions: INVALID_UPDATE_VERSION or INELIGIBLE_REPLICA.
        """
        left = {paths.partition_state(change.partition): change for change in changes}
        errors: dict[TopicPartition, KafkaError] = {}
        while left:
            step = dict(list(left.items())[:STEP_OPERATIONS])
            joining = sorted({each for change in step.values() for each in change.joining})
            lost = await self._gone(joining)
            if not lost:
                checks = [Check(path=paths.broker(each)) for each in joining]
                try:
                    await self.write([*checks, *(each.operation() for each in step.values())])
                except (BadVersion, NoNode) as error:
                    lost = {error.path}
                else:
                    for path in step:
                        del left[path]
                    continue
            for path, change in step.items():
                if path in lost:
                    probe("controller: a partition state was changed concurrently")
                    message = "the partition state was changed concurrently"
                    errors[change.partition] = KafkaError(ErrorCode.invalid_update_version, message)
                elif not lost.isdisjoint(map(paths.broker, change.joining)):
                    probe("controller: a joining broker is gone when the ISR is written")
                    message = f"brokers {list(change.joining)} are not all registered, or have registered again"
                    errors[change.partition] = KafkaError(ErrorCode.ineligible_replica, message)
                else:
                    continue
                del left[path]
            if len(step) == len(left.keys() & step.keys()):
                raise KafkaError(ErrorCode.unknown_server_error, f"{', '.join(sorted(lost))} is gone or was changed")
        return errors

    async def _gone(self, brokers: Sequence[int]) -> set[str]:
        """Return the nodes of those brokers that are not in the registration that the image has."""
        known, nodes = self.view.image.brokers, await self._store.get_many([paths.broker(each) for each in brokers])
        return {
            paths.broker(each)
            for each, node in zip(brokers, nodes, strict=True)
            if node is None or each not in known or node.created != known[each].epoch
        }

    async def request_deletions(self, names: Iterable[str], *, listed_version: int | None = None) -> None:
        """Create the nodes that request the deletion of topics.

        With `listed_version`, also clear the parent node's data, in which an old tool listed the topics. Raises
        `BadVersion` if the parent node has another version.
        """
        self.view.watcher.mark_names()  # a tool may have requested some of them just now
        known = set(await self._store.children(paths.DELETE_TOPICS))
        operations: list[Operation] = [Create(path=paths.delete_topic(name)) for name in names if name not in known]
        if listed_version is not None:
            operations.append(SetData(path=paths.DELETE_TOPICS, data=b"", version=listed_version))
        await self.write(operations)

    async def refuse_deletions(self, names: Iterable[str]) -> None:
        """Remove deletion requests that the configuration forbids."""
        await self.write([Delete(path=paths.delete_topic(name)) for name in names])

    async def delete_topic(self, name: str) -> None:
        """Remove the nodes of a topic whose replicas are deleted, and last its deletion request."""
        topic = (await read_topics(self._store, [name], BrokenNodes())).get(name)
        replicas = () if topic is None else (each.replicas for each in topic.partitions.values())
        away = self.channels.unregistered({broker_id for some in replicas for broker_id in some})
        topic_id = UNNAMED if topic is None else topic.topic_id
        existing = await read_subtree(self._store, paths.topic(name))
        others = [paths.topic_config(name), paths.delete_topic(name)]
        others += [paths.deleted_replica(each, topic_id) for each in away]
        found = await self._store.get_many(others)
        existing += [path for path, node in zip(others, found, strict=True) if node is not None]
        await self._write_steps(deletion_operations(name, frozenset(existing), topic_id=topic_id, away=away))
        self._topic_log.log("deleted", logging.INFO, "Deleted topic %s", name)

    async def missed_deletions(self, topic: TopicImage, stops: Iterable[StopReplicas]) -> list[Operation]:
        """Return operations that note which replicas unregistered brokers must delete; empty if the topic has no id."""
        if topic.topic_id == UNNAMED:
            return []
        notes = [
            paths.deleted_replica(broker_id, topic.topic_id, each.partition.partition)
            for each in stops
            for broker_id in self.channels.unregistered(each.brokers)
        ]
        found = await self._store.get_many(notes)
        return [Create(path=path) for path, node in zip(notes, found, strict=True) if node is None]

    async def _set_topic_id(self, name: str, topic_id: UUID) -> None:
        path = paths.topic(name)
        node = await self._store.get(path)
        if node is not None:
            topic = replace(TopicNode.decode(path, node.data), topic_id=topic_id)
            await self.write([SetData(path=path, data=topic.encode(), version=node.version)])

    async def _write_steps(self, groups: Iterable[list[Operation]]) -> None:
        for step in _steps(groups):
            await self.write(step)

    async def write(self, operations: Sequence[Operation]) -> None:
        """Write all operations in one transaction, which the view's next `refresh` adds to the image.

        Raises `ControllerMovedError` if another broker was elected.
        """
        if not operations:
            return
        self.writes += 1
        watcher, results = self.view.watcher, list[Result]([None] * len(operations))
        try:
            _, *results = await self._store.multi([self._epoch_check, *operations])
        except BadVersion as error:
            if error.path == paths.CONTROLLER_EPOCH:
                raise ControllerMovedError(f"the controller epoch {self.number} is over") from None
            raise
        finally:
            watcher.wrote(operations, results)


def _log_elections(image: ClusterImage, changes: Sequence[StateChange]) -> None:
    """Log the new leaders, with a warning if partitions have none or a leader that may lack records."""
    if not changes:
        return
    moved = []
    lost = [each.partition for each in changes if each.state.leader == NO_LEADER]
    for each in changes:
        before = image.partition(each.partition)
        if each.state.leader not in (NO_LEADER, None if before is None else before.leader):
            moved.append(f"{each.partition} on broker {each.state.leader}")
    unclean = sum(each.is_unclean for each in changes)
    _log.log(
        logging.WARNING if lost or unclean else logging.INFO,
        "Elected leaders of %d partitions%s%s; the ISR of %d others changed%s",
        len(moved),
        f" ({first_names(moved)})" if moved else "",
        f", {unclean} of them unclean: records may be lost" if unclean else "",
        len(changes) - len(moved) - len(lost),
        f". {len(lost)} partitions have no leader until a member of their ISR returns: {first_names(lost)}"
        if lost
        else "",
    )


def _steps(groups: Iterable[list[Operation]]) -> Iterator[list[Operation]]:
    """Join groups of operations up to `STEP_OPERATIONS`; a group is not divided."""
    step: list[Operation] = []
    for group in groups:
        if step and len(step) + len(group) > STEP_OPERATIONS:
            yield step
            step = []
        step += group
    if step:
        yield step
