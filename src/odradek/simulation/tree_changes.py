"""The check of every change of the tree, as it is committed.

    partition state       the leader is in the ISR, the ISR within the replicas; epochs rise; only an unclean election,
                          which the topic must allow, chooses a leader from outside of the ISR, and marks it (KIP-704);
                          a joining broker is registered in the epoch with which it fetched (KIP-903)
    topic                 its id stays, no partition goes, and a reassignment ends when its whole target is in sync
    ids and offsets       controller epochs, producer ids and offsets of generation 1 rise; no claim of a partition is
                          taken from its owner, whose session lives

A change costs no more than the decoding of its node.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from odradek.broker.replication.partition import Partition
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    NO_LEADER,
    RECOVERING,
    ConfigNode,
    PartitionStateNode,
    ProducerIdBlockNode,
    TopicNode,
    decode_integer,
)
from odradek.model import TopicPartition
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.virtual.simulation import Simulation
from odradek.stores import MemoryTree
from odradek.stores.semantics import Record

_INTERVAL_S: Final = 0.1
_UNCLEAN: Final = "unclean.leader.election.enable"


class TreeChanges:
    """The findings in the changes of a tree, and its unclean elections; `led` returns the partitions with leaders.

    An unclean election has ended when no broker leads the partition in an older epoch: until then, a former leader may
    acknowledge records that are lost.
    """

    def __init__(self, tree: MemoryTree, simulation: Simulation, *, led: Callable[[], Sequence[Partition]]) -> None:
        self._tree, self._simulation, self._led = tree, simulation, led
        self._unclean: dict[TopicPartition, int] = {}
        self._ended_s: dict[TopicPartition, float] = {}
        self.findings: list[str] = []
        tree.on_change = self._look

    def raise_findings(self) -> None:
        """Raise `BrokenPromiseError` for the first finding, if there is one."""
        if self.findings:
            raise BrokenPromiseError(self.findings[0])

    def unclean_epoch(self, place: TopicPartition) -> int | None:
        """Return the leader epoch of the partition's last unclean election, or None."""
        return self._unclean.get(place)

    def unclean_ended_s(self, place: TopicPartition) -> float:
        """Return when the partition's last unclean election ended: infinity if it has not, -1 if there was none."""
        return self._ended_s.get(place, -1.0)

    def _look(self, path: str, before: Record | None, after: Record | None) -> None:
        if after is None or (before is not None and after.data == before.data):
            return
        try:
            if path.startswith(paths.TOPICS):
                if place := paths.partition_of_state(path):
                    self.findings += self._of_state(place, path, before, after)
                elif before is not None and paths.parent(path) == paths.TOPICS:
                    self.findings += self._of_topic(path, before, after)
            elif before is not None and not _is_risen(path, before.data, after.data):
                self.findings.append(f"{path} had {before.data.decode()}, and has {after.data.decode()}")
        except BrokenNodeError as error:
            self.findings.append(str(error))

    def _of_state(self, place: TopicPartition, path: str, before: Record | None, after: Record) -> Iterator[str]:
        state = PartitionStateNode.decode(path, after.data)
        old = state if before is None else PartitionStateNode.decode(path, before.data)
        topic = self._topic(place.topic)
        epoch = self._tree.find(paths.CONTROLLER_EPOCH)
        is_moved = (state.leader, state.leader_recovery_state) != (old.leader, old.leader_recovery_state)
        problems = {
            "the leader is not in the ISR": state.leader not in (NO_LEADER, *state.isr),
            "the ISR is empty": not state.isr,
            "the ISR has a broker twice": len(set(state.isr)) < len(state.isr),
            "the ISR has brokers that are no replicas": topic is not None
            and not set(state.isr) <= {*topic.replicas.get(place.partition, ())},
            "the leader epoch went back": state.leader_epoch < old.leader_epoch,
            "the leader epoch stayed": state.leader != old.leader and state.leader_epoch == old.leader_epoch,
            "the leader epoch skips": state.leader_epoch > old.leader_epoch + 1,
            "another controller had been elected": epoch is not None
            and state.controller_epoch != decode_integer(paths.CONTROLLER_EPOCH, epoch.data),
            "a leader that recovers has followers in sync": state.leader_recovery_state == RECOVERING
            and len(state.isr) > 1,
        }
        yield from (f"{what}: {place} had {old}, and has {state}" for what, is_so in problems.items() if is_so)
        if is_moved and state.leader not in (NO_LEADER, *old.isr):
            yield from self._of_unclean_election(place, old, state)
        if state.leader_epoch == old.leader_epoch and before is not None:
            yield from self._of_joining(place, set(state.isr).difference(old.isr), state, before.version)

    def _of_unclean_election(
        self, place: TopicPartition, old: PartitionStateNode, state: PartitionStateNode
    ) -> Iterator[str]:
        self._simulation.network.note(f"broker {state.leader} is elected for {place}, uncleanly")
        self._unclean[place] = state.leader_epoch
        self._ended_s[place] = float("inf")
        self._wait(place, state.leader_epoch)
        path = paths.topic_config(place.topic)
        record = self._tree.find(path)
        if record is None or ConfigNode.decode(path, record.data).config.get(_UNCLEAN) != "true":
            yield f"{place} had an unclean election, which its topic does not allow"
        if state.leader_recovery_state != RECOVERING:
            yield f"an unclean election is not marked: {place} had {old}, and has {state}"

    def _of_joining(
        self, place: TopicPartition, joining: set[int], state: PartitionStateNode, version: int
    ) -> Iterator[str]:
        """Yield the brokers that join the ISR in another epoch than that of their registration."""
        led = [each.replication for each in self._led() if each.topic_partition == place] if joining else []
        pending = next((each.pending for each in led if each.broker_id == state.leader), None)
        for broker in joining:
            record = self._tree.find(paths.broker(broker))
            if record is None:
                yield f"broker {broker} joins the ISR of {place}, and is not registered"
            elif pending is not None and pending.partition_epoch == version and pending.isr == state.isr:
                epoch = pending.broker_epochs[pending.isr.index(broker)]
                if epoch != record.created:
                    yield f"broker {broker} joins the ISR of {place} with epoch {epoch}, and has {record.created}"

    def _of_topic(self, path: str, before: Record, after: Record) -> Iterator[str]:
        topic = paths.name_of(path)
        old, new = TopicNode.decode(path, before.data), TopicNode.decode(path, after.data)
        if new.topic_id != old.topic_id or not old.replicas.keys() <= new.replicas.keys():
            yield f"{topic} had {old}, and has {new}"
        for number, replicas in new.replicas.items():
            adding, removing = set(old.adding_replicas.get(number, ())), set(old.removing_replicas.get(number, ()))
            has_ended = number not in new.adding_replicas and number not in new.removing_replicas
            place = TopicPartition(topic, number)
            record = self._tree.find(state_path := paths.partition_state(place))
            if record is None:
                continue
            isr = PartitionStateNode.decode(state_path, record.data).isr
            # Replicas that are added and removed are withdrawn: the reassignment was cancelled.
            if adding != removing and has_ended and not set(replicas) <= set(isr):
                yield f"the reassignment of {place} to {list(replicas)} ended with the ISR {list(isr)}"
            if replicas != old.replicas.get(number, replicas) and not set(isr) <= set(replicas):
                yield f"{place} has the replicas {list(replicas)} and the ISR {list(isr)}"

    def _topic(self, name: str) -> TopicNode | None:
        record = self._tree.find(path := paths.topic(name))
        return None if record is None else TopicNode.decode(path, record.data)

    def _wait(self, place: TopicPartition, epoch: int) -> None:
        """Note the end of an election, now or when no broker leads in an older epoch any more."""
        if any(each.topic_partition == place and each.leader_epoch < epoch for each in self._led()):
            asyncio.get_running_loop().call_later(_INTERVAL_S, self._wait, place, epoch)
        elif self._unclean[place] == epoch:
            self._ended_s[place] = self._simulation.clock.elapsed_s


def _is_risen(path: str, before: bytes, after: bytes) -> bool:
    """Return False if a number went back that must rise, or a claim changed that must stay."""
    if path == paths.CONTROLLER_EPOCH:
        return decode_integer(path, after) > decode_integer(path, before)
    if path == paths.LATEST_PRODUCER_ID_BLOCK:
        return (
            not before or ProducerIdBlockNode.decode(path, after).first > ProducerIdBlockNode.decode(path, before).last
        )
    kind = path.split("/")[3:4] if path.startswith(paths.CONSUMERS) else []
    return kind != ["owners"] and (kind != ["offsets"] or not before or int(after) > int(before))
