"""The controller's state that is not in the tree: brokers that shut down, offline logs, and full disks.

An entry is valid for one registration of its broker. A new controller collects the entries from the responses to its
first UpdateMetadata, and from repeated ControlledShutdown requests.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Set

from odradek.metadata.image import BrokerImage
from odradek.model import ErrorCode, TopicPartition

_log = logging.getLogger("odradek.broker")


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

    @property
    def offline(self) -> Mapping[int, Collection[TopicPartition]]:
        """Replicas whose logs are offline, by broker."""
        return {broker_id: partitions for broker_id, (_, partitions) in self._offline.items()}

    @property
    def full(self) -> Mapping[int, Collection[TopicPartition]]:
        """Replicas on full disks, by broker."""
        return {broker_id: partitions for broker_id, (_, partitions) in self._full.items()}

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
