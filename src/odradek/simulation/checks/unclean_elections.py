"""Unclean elections, by the partition states in the tree: the new leader was not in the ISR, so records may be lost."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER, PartitionStateNode
from odradek.model import TopicPartition
from odradek.simulation.world import World
from odradek.stores import MemoryStore

_INTERVAL_S: Final = 0.1


class UncleanElections:
    """The unclean elections of the partitions that are watched, as they happen.

    An election has ended when no broker leads the partition in an older epoch: until then, a former leader may
    acknowledge records that are lost.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._data: dict[TopicPartition, bytes] = {}
        self._states: dict[TopicPartition, PartitionStateNode] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._ended_s: dict[TopicPartition, float] = {}

    def watch(self, places: Iterable[TopicPartition]) -> None:
        """Notice the unclean elections of these partitions from now on."""
        store = MemoryStore(self._world.tree)
        for place in places:
            store.watch_data(paths.partition_state(place), partial(self._look, place))
            self._look(place)

    def last_epoch(self, place: TopicPartition) -> int | None:
        """Return the leader epoch of the partition's last unclean election, or None, also before the watch fires."""
        self._look(place)
        return self._epochs.get(place)

    def ended_s(self, place: TopicPartition) -> float:
        """Return when the partition's last unclean election ended: infinity if it has not, -1 if there was none."""
        return self._ended_s.get(place, -1.0)

    def _look(self, place: TopicPartition) -> None:
        path = paths.partition_state(place)
        record = self._world.tree.find(path)
        if record is None or record.data is self._data.get(place):
            return
        self._data[place] = record.data
        state, before = PartitionStateNode.decode(path, record.data), self._states.get(place)
        self._states[place] = state
        if before is not None and state.leader not in (NO_LEADER, *before.isr):
            self._world.simulation.network.note(f"broker {state.leader} is elected for {place}, uncleanly")
            self._epochs[place] = state.leader_epoch
            self._ended_s[place] = float("inf")
            self._wait(place, state.leader_epoch)

    def _wait(self, place: TopicPartition, epoch: int) -> None:
        """Note the end of an election, now or when no broker leads in an older epoch any more."""
        if any(each.topic_partition == place and each.leader_epoch < epoch for each in self._world.led):
            asyncio.get_running_loop().call_later(_INTERVAL_S, self._wait, place, epoch)
        elif self._epochs[place] == epoch:
            self._ended_s[place] = self._world.now_s
