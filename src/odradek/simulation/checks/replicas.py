"""Checks of replicas: the high watermark never goes back, and every in-sync replica has the records below it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.broker.lifecycle import Broker
from odradek.broker.log.log import Log
from odradek.broker.replication.partition import Partition
from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode, TopicNode
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.simulation.promises import PATIENCE_S, BrokenPromiseError
from odradek.simulation.world import World, until
from odradek.stores.semantics import Record

_MOST_BYTES: Final = 1 << 24


class HighWatermarks:
    """The high watermarks of leaders over time. A new leader may start with a lower one; no leader's goes back.

    While an ISR has fewer than `min.insync.replicas` members, no high watermark advances (KIP-966).
    """

    def __init__(self, world: World, topics: Sequence[str]) -> None:
        self._world = world
        self._topics = frozenset(topics)
        self._seen: dict[Partition, int] = {}
        self._too_small: dict[Partition, int] = {}
        """The partition epochs of those whose ISR was too small at the last look."""
        self._brokers: dict[Broker, None] = {}
        self._committed: dict[tuple[TopicPartition, int], int] = {}
        """The highest high watermark of all leaders, by the leader epoch of the last unclean election."""
        self._isrs: dict[TopicPartition, tuple[Record, tuple[int, ...]]] = {}
        """The ISR of each partition's state node."""
        self._too_high: list[str] = []
        """Findings: a member of the ISR, which may be the next leader, lacks committed records."""

    def look(self) -> None:
        """Raise `BrokenPromiseError` if a leader's high watermark is lower than at the last call, or too high.

        It is too high if a member of the ISR, which may be the next leader, lacks records below it, or below the high
        watermark of an earlier leader.
        """
        for broker in self._world.running.values():
            if broker not in self._brokers:
                self._brokers[broker] = None
                broker.partitions.on_leadership(self._note_leader)
        for partition in self._led():
            self._check_isr(partition.topic_partition, partition)
            if self._too_high:
                raise BrokenPromiseError(self._too_high[0])
            before, now = self._seen.get(partition, 0), partition.high_watermark
            if now < before:
                raise BrokenPromiseError(
                    f"the high watermark of {partition.topic_partition} went back from {before} to {now}"
                )
            if now > before and self._too_small.get(partition) == partition.replication.partition_epoch:
                raise BrokenPromiseError(
                    f"{partition.topic_partition} has committed offsets {before} to {now} with the ISR {partition.isr}"
                )
            self._seen[partition] = now
            if len(partition.isr) < min(
                partition.log.config.min_insync_replicas, len(partition.replication.remotes) + 1
            ):
                self._too_small[partition] = partition.replication.partition_epoch

    def _note_leader(self, place: TopicPartition, leader: Partition | None) -> None:
        """Note what all leaders have committed, and check the ISR."""
        if leader is None or place.topic not in self._topics:
            return
        epoch = self._least_epoch(place)
        known = [each for each in self._world.leaders if each.topic_partition == place and each.leader_epoch >= epoch]
        self._committed[place, epoch] = max((each.high_watermark for each in known), default=0)
        self._check_isr(place, leader)

    def _check_isr(self, place: TopicPartition, leader: Partition) -> None:
        """Note a finding if a member of the ISR in the tree lacks committed records."""
        world, path = self._world, paths.partition_state(place)
        record, epoch = world.tree.find(path), self._least_epoch(place)
        if record is None or leader.leader_epoch < epoch:
            return
        known = self._isrs.get(place)
        if known is None or known[0] is not record:
            known = self._isrs[place] = record, PartitionStateNode.decode(path, record.data).isr
        committed = max(self._committed.get((place, epoch), 0), leader.high_watermark)
        self._committed[place, epoch] = committed
        for number in known[1]:
            broker = world.running.get(number)
            log = None if broker is None else broker.logs.get(place)
            # A broker that restarts after a crash leaves the ISR, if it lost records, before it registers.
            registration = world.tree.find(paths.broker(number))
            if log is None or registration is None or registration.owner != world.store(number).session_id:
                continue
            if log.written_offset < committed:
                self._too_high.append(
                    f"broker {number} is in the ISR of {place} with the log end offset {log.written_offset}, and "
                    f"{committed} was committed; the leader {leader.replication.broker_id} has the high watermark "
                    f"{leader.high_watermark}"
                )

    def findings(self) -> list[str]:
        """Return the high watermarks below the highest one seen, and the replicas that differ from their leaders.

        To be called when every replica is in sync.
        """
        return self.lower() + [sentence for each in self._led() for sentence in self._differences(each)]

    def lower(self) -> list[str]:
        """Return the high watermarks below the highest one seen; a new leader's may be until its followers fetch.

        Those from before an unclean election do not count.
        """
        highest: dict[TopicPartition, int] = {}
        for partition, offset in self._seen.items():
            place = partition.topic_partition
            if partition.leader_epoch >= self._least_epoch(place):
                highest[place] = max(highest.get(place, 0), offset)
        return [
            f"{each.topic_partition} has the high watermark {each.high_watermark}, and had {before}"
            for each in self._led()
            if each.high_watermark < (before := highest.get(each.topic_partition, 0))
        ]

    async def starts(self, *, but: str) -> list[str]:
        """Let virtual time pass until all replicas begin at their leader's offset; return those that never do.

        Of the topic `but`, each replica deletes old segments by itself.
        """
        with suppress(TimeoutError):
            await until(lambda: not self._other_starts(but), within_s=PATIENCE_S, each_s=0.5)
        return self._other_starts(but)

    def _other_starts(self, but: str) -> list[str]:
        return [
            f"broker {number} has {leader.topic_partition} from {log.log_start_offset}, and its leader from {start}"
            for leader in self._led()
            for start in (leader.log.log_start_offset,)
            for number, log in self._logs(leader).items()
            if log is not None and log.log_start_offset != start and leader.topic_partition.topic != but
        ]

    def _least_epoch(self, place: TopicPartition) -> int:
        """Return the first leader epoch whose committed records no unclean election has removed."""
        return self._world.tree_changes.unclean_epoch(place) or 0

    def _led(self) -> list[Partition]:
        return [each for each in self._world.led if each.topic_partition.topic in self._topics]

    def _differences(self, leader: Partition) -> list[str]:
        place, end = leader.topic_partition, leader.high_watermark
        if "compact" in leader.log.config.cleanup_policy:
            return []  # each replica is compacted by itself
        logs = self._logs(leader)
        # Each replica deletes old segments by itself.
        start = max([leader.log.log_start_offset, *(log.log_start_offset for log in logs.values() if log is not None)])
        expected = _batches(leader.log, start, end)
        return [
            f"broker {number} has other batches of {place} from {start} to {end} than its leader"
            for number, log in logs.items()
            if log is None or _batches(log, start, end) != expected
        ]

    def _logs(self, leader: Partition) -> dict[int, Log | None]:
        """Return the logs of a partition's replicas."""
        place = leader.topic_partition
        # Brokers learn later than the tree that a reassignment is complete; the removed replica has deleted its log.
        replicas = {leader.replication.broker_id, *leader.replication.remotes} & self._assigned(place)
        return {number: broker.logs.get(place) for number, broker in self._world.running.items() if number in replicas}

    def _assigned(self, place: TopicPartition) -> frozenset[int]:
        """Return the replicas of a partition by the tree; none of a topic that it lacks."""
        path = paths.topic(place.topic)
        record = self._world.tree.find(path)
        return frozenset(() if record is None else TopicNode.decode(path, record.data).replicas[place.partition])


def _batches(log: Log, offset: int, end: int) -> list[bytes]:
    """Return each batch from an offset on and below an end."""
    found = list[bytes]()
    while offset < end and (data := log.read(offset, _MOST_BYTES)):
        for position, header in iterate_batches(memoryview(data)):
            if header.base_offset < end:
                found.append(bytes(data[position : position + header.size]))
            offset = header.next_offset
    return found
