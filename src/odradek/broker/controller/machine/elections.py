"""Leader elections when brokers or logs fail or return.

    leader alive                           it stays; dead members leave the ISR
    disks of some ISR members full         these count as dead, if another one stays
    leader dead, ISR members alive         the first of these, in the order of the replicas
    no ISR member alive, unclean allowed   the first live replica, alone in the ISR: records may be lost
                                           (brokers that shut down lead only if no other can)
    none of these                          no leader; the ISR keeps its members, which may return. Live members
                                           with offline logs leave it, unless no other member remains

Every change raises the leader epoch by 1.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from odradek.config import BrokerConfig, topic_config
from odradek.metadata.image import ClusterImage, PartitionImage, TopicImage
from odradek.metadata.nodes import NO_LEADER
from odradek.metadata.state_change import StateChange, new_leadership
from odradek.model import ConfigurationError, TopicPartition
from odradek.model.probes import probe


def elect(
    partition: PartitionImage,
    live: Collection[int],
    *,
    unclean: bool,
    shutting_down: Collection[int] = (),
    without_log: Collection[int] = (),
) -> tuple[int, tuple[int, ...]] | None:
    """Return the leader and the ISR that `partition` should have, or `None` if it has them.

    Brokers `shutting_down` lead only if they are in sync and no other is. Brokers in `without_log` are registered, but
    their log is offline. They leave the ISR if it has other members, because a broker that restarts after a crash does
    not register while it shares an ISR with a registered broker (`broker.cluster.registration.unclean_registration`).
    """
    in_sync = tuple(replica for replica in partition.isr if replica in live)
    if partition.leader in in_sync:
        decided = partition.leader, in_sync
    elif in_sync:
        # A tool may have written an ISR with members that are not replicas; they still have the records.
        candidates = [replica for replica in partition.replicas if replica in in_sync] or list(in_sync)
        decided = _first_staying(candidates, shutting_down), in_sync
    elif unclean and (staying := [each for each in partition.replicas if each in live and each not in shutting_down]):
        # A leader that leaves at once would gain nothing, and cost the records of the replicas that return.
        probe("controller: an unclean election")
        decided = staying[0], (staying[0],)
    else:
        probe("controller: a partition has no leader")
        waited_for = tuple(replica for replica in partition.isr if replica not in without_log)
        decided = NO_LEADER, waited_for or partition.isr
    return None if decided == (partition.leader, partition.isr) else decided


def _first_staying(candidates: Sequence[int], shutting_down: Collection[int]) -> int:
    """Return the first candidate that does not shut down, or the first of all if each does."""
    return next((replica for replica in candidates if replica not in shutting_down), candidates[0])


def elections(
    image: ClusterImage,
    topics: Iterable[TopicImage],
    controller_epoch: int,
    config: BrokerConfig,
    *,
    shutting_down: Collection[int] = (),
    offline: Mapping[int, Collection[TopicPartition]] = MappingProxyType({}),
    full: Mapping[int, Collection[TopicPartition]] = MappingProxyType({}),
) -> Iterator[StateChange]:
    """Yield the elections that are necessary in `topics` with the image's live brokers.

    Brokers that are `shutting_down` keep their leaderships, but elections prefer other brokers. `offline` replicas, by
    broker, count as dead; so do those on `full` disks, if a live member of the ISR has space and stays. Partitions
    without a readable state are skipped.
    """
    registered = image.brokers.keys()
    for topic in topics:
        unclean: bool | None = None
        for number, partition in topic.partitions.items():
            if partition.leader_epoch < 0:
                continue
            key = TopicPartition(topic.name, number)
            without_log = {broker_id for broker_id, keys in offline.items() if broker_id in registered and key in keys}
            live = registered - without_log if without_log else registered
            if full:
                able = live - {broker_id for broker_id, keys in full.items() if key in keys}
                probe("controller: full disks count in an election")
                live = live if able.difference(shutting_down).isdisjoint(partition.isr) else able
            if unclean is None and partition.leader not in live:
                unclean = _allows_unclean(topic.config, config)
            decided = elect(
                partition, live, unclean=bool(unclean), shutting_down=shutting_down, without_log=without_log
            )
            if decided is not None:
                leader, isr = decided
                yield new_leadership(key, partition, leader, isr, controller_epoch=controller_epoch)


def _allows_unclean(overrides: Mapping[str, str], config: BrokerConfig) -> bool:
    """Return whether a topic allows unclean elections; False if its configuration is invalid."""
    try:
        return topic_config(config, overrides).unclean_leader_election_enable
    except ConfigurationError:
        return False
