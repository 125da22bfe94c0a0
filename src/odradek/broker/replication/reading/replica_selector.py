"""Selects the replica that a consumer should read: the leader, or an in-sync follower, by `replica.selector.class`.

The leader's response names the follower and has no records (KIP-392); the consumer reads the follower until it gets an
error, the follower goes offline, or the consumer's metadata is `metadata.max.age.ms` old.
"""

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, cast

from odradek.broker.replication.partition import Partition
from odradek.metadata.image import ClusterImage
from odradek.model import ConfigurationError, TopicPartition
from odradek.model.suggestions import similar_names

_log = logging.getLogger("odradek.broker")
ENTRY_POINTS: Final = "odradek.replica_selectors"
"""The entry point group in which packages register their selectors."""


class ClientMetadata(NamedTuple):
    """The consumer that fetches. `rack_id` is its `client.rack`, empty without one."""

    rack_id: str
    client_id: str
    client_address: str
    listener_name: str


class ReplicaView(NamedTuple):
    """A replica as the leader knows it: `time_since_last_caught_up_ms` is 0 for the leader itself."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    time_since_last_caught_up_ms: int


class ReplicaSelector(Protocol):
    """Chooses one of the replicas that hold the offset and are in sync; called for each fetch of a partition."""

    def select(
        self,
        partition: TopicPartition,
        client_metadata: ClientMetadata,
        replicas: Sequence[ReplicaView],
        leader: ReplicaView,
    ) -> ReplicaView | None:
        """Return the replica to read, one of `replicas` (they include the leader), or None to read the leader."""


class LeaderSelector:
    """Selects the leader always."""

    def select(
        self,
        partition: TopicPartition,
        client_metadata: ClientMetadata,
        replicas: Sequence[ReplicaView],
        leader: ReplicaView,
    ) -> ReplicaView | None:
        del partition, client_metadata, replicas
        return leader


class RackAwareReplicaSelector:
    """Selects the leader if it is in the consumer's rack, else that rack's most caught-up replica, else the leader."""

    def select(
        self,
        partition: TopicPartition,
        client_metadata: ClientMetadata,
        replicas: Sequence[ReplicaView],
        leader: ReplicaView,
    ) -> ReplicaView | None:
        del partition
        rack = client_metadata.rack_id
        if not rack or leader.rack == rack:
            return leader
        nearby = [replica for replica in replicas if replica.rack == rack]
        return max(nearby, key=_caught_up, default=leader)


def _caught_up(replica: ReplicaView) -> tuple[int, int, int]:
    return replica.log_end_offset, -replica.time_since_last_caught_up_ms, replica.broker_id


_BUILT_IN: Final[dict[str, Callable[[], ReplicaSelector]]] = {
    "leader": LeaderSelector,
    "rack-aware": RackAwareReplicaSelector,
    "org.apache.kafka.common.replica.LeaderSelector": LeaderSelector,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RackAwareReplicaSelector,
}


def create_replica_selector(name: str) -> ReplicaSelector:
    """Return the selector of a built-in name, entry point or import path. Raises `ConfigurationError` if unusable."""
    made: Any = _BUILT_IN.get(name)
    if made is None:
        from importlib.metadata import entry_points  # here, as it takes a megabyte, which few processes need

        named = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
        try:
            made = named[name].load() if name in named else _imported(name)
        except (ImportError, AttributeError, ValueError) as error:
            names = [*_BUILT_IN, *sorted(named)]
            near = similar_names(name, names)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigurationError(
                f"unknown replica.selector.class {name!r}{hint}: use one of {' '.join(names)}, or the import path of a "
                f"class of your own ({error})"
            ) from error
    if not callable(getattr(made, "select", None)):
        raise ConfigurationError(f"replica.selector.class {name!r} is not a replica selector: it has no method select")
    try:
        return cast("ReplicaSelector", made() if isinstance(made, type) else made)
    except Exception as error:  # the user's constructor
        raise ConfigurationError(
            f"replica.selector.class {name!r} cannot be created: it is called without arguments ({error})"
        ) from error


def _imported(path: str) -> Any:
    module, separator, name = path.rpartition(":" if ":" in path else ".")
    if not separator:
        raise ValueError("it is not an import path")
    return getattr(import_module(module), name)


class PreferredReadReplicas:
    """The preferred read replicas of the partitions that this broker leads."""

    def __init__(self, selector: ReplicaSelector, image: Callable[[], ClusterImage]) -> None:
        self._selector = selector
        self._image = image
        self._has_failed = False

    def find(self, partition: Partition, offset: int, client: ClientMetadata, now_ms: int) -> int | None:
        """Return the id of the follower that the consumer should read from `offset` on; None to read this broker.

        Candidates are in sync, have the offset in their log, and have the client's listener. `now_ms` is monotonic.
        """
        replication, brokers = partition.replication, self._image().brokers
        me = brokers.get(replication.broker_id)
        leader = ReplicaView(replication.broker_id, me.rack if me else None, partition.log.log_end_offset, 0)
        replicas = [leader]
        for broker_id, remote in replication.remotes.items():
            broker = brokers.get(broker_id)
            if (
                broker is not None
                and broker_id in replication.isr
                and remote.log_start_offset <= offset <= remote.log_end_offset
                and broker.endpoint(client.listener_name) is not None
            ):
                lag_ms = max(now_ms - remote.last_caught_up_ms, 0)
                replicas.append(ReplicaView(broker_id, broker.rack, remote.log_end_offset, lag_ms))
        if len(replicas) == 1:
            return None
        chosen = self._select(partition.topic_partition, client, replicas, leader)
        return None if chosen is None or chosen == leader or chosen not in replicas else chosen.broker_id

    def _select(
        self, partition: TopicPartition, client: ClientMetadata, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> ReplicaView | None:
        try:
            return self._selector.select(partition, client, replicas, leader)
        except Exception:  # a class of the user's, called for each fetch
            if not self._has_failed:
                _log.exception("The replica selector has failed, so consumers read the leader; this is logged once")
            self._has_failed = True
            return None
