"""Producers and a reader of a topic that allows unclean elections: these lose records, and break no other promise.

- Only records that were sent before an unclean election of their partition, or while a former leader still led, may be
  lost.
- No record is doubled or reordered, also by producers whose last batches are lost.
- The reader learns of each truncation: its position is reset to where the logs diverge, or it gets a
  `LogTruncationError`. In the end it has read every record that was sent after the election.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from odradek.clients.consumer.errors import LogTruncationError
from odradek.model import TopicPartition
from odradek.simulation.histories import History, Send
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.records import RecordingConsumer, Records
from odradek.simulation.world import World


class TruncatedConsumer(RecordingConsumer):
    """A consumer that reads on after truncations, as another reading of the history."""

    def __init__(
        self, world: World, history: History, host: str, places: Sequence[TopicPartition], **settings: Any
    ) -> None:
        super().__init__(world, history, host, places, **settings)
        self._chance = world.simulation.entropy(host)
        self._truncations: dict[TopicPartition, int] = defaultdict(int)
        self._values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)

    def _has_read(self, place: TopicPartition, log: Sequence[tuple[int, bytes]]) -> bool:
        """Return whether it has read every record of `log`, except those sent before the last unclean election ended.

        A reader may skip those: a consumer takes the end of their older leader epoch for the point of divergence.
        """
        old = {send.value for send in self._history.sends if self._history.may_be_lost(send)}
        return all(self._values[place].get(offset) == value or value in old for offset, value in log)

    async def _read(self) -> None:
        try:
            await super()._read()
        except LogTruncationError as error:
            self._truncate(error.partition)
            known = error.divergence
            self._consumer.seek(error.partition, 0 if known is None else known.offset)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.5, 4.0)))

    def _note(self, place: TopicPartition, offset: int, value: bytes) -> None:
        if offset < self.next_offset.get(place, 0):
            self._truncate(place)
        self._values[place][offset] = value
        self._history.poll(f"{self._host}/{self._truncations[place]}", place, offset, value)
        self.next_offset[place] = offset + 1

    def _truncate(self, place: TopicPartition) -> None:
        if self._world.tree_changes.unclean_epoch(place) is None:
            raise BrokenPromiseError(f"a reader of {place} is reset without an unclean election")
        self._truncations[place] += 1
        self.next_offset[place] = 0


class Unclean(Records):
    """Two producers and a reader, as of `Records`. The seed draws whether the reader resets its position itself."""

    clients: ClassVar[Sequence[str]] = ("unclean-writer-0", "unclean-writer-1", "unclean-reader")
    topics: ClassVar[Sequence[str]] = ("unclean",)
    topic_config: ClassVar[Mapping[str, str]] = {"unclean.leader.election.enable": "true"}

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self.history.may_be_lost = self._may_be_lost

    def _make_reader(self, host: str) -> RecordingConsumer:
        policy = self.world.simulation.entropy("unclean").choice(("none", "earliest"))
        return TruncatedConsumer(
            self.world, self.history, host, self._places, client_rack=self.setup.rack, auto_offset_reset=policy
        )

    def _may_be_lost(self, send: Send) -> bool:
        return send.sent_at <= self.world.tree_changes.unclean_ended_s(send.partition)
