"""A `Member` with a `Consumer` whose partitions are paused: it takes part in the group and fetches nothing."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from odradek.clients.consumer import Consumer
from odradek.model import TopicPartition
from odradek.runtime import Clock

_JOIN_S: Final = 10.0
"""How long the first poll waits for partitions; the coordinator waits 3 s for other members of a new group."""
_REBALANCE_S: Final = 3.0
"""How long a poll waits for new partitions after some were revoked; a later poll returns those that come later."""
_POLL_MS: Final = 100


class ConsumerMember:
    """The `Member` of a consumer that is started, has no topics, and does not commit automatically."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._topics: frozenset[str] = frozenset()
        self._given: set[TopicPartition] = set()
        self._wait_s = _JOIN_S
        """How long `poll` waits for an assignment; 0 unless a rebalance has begun."""

    async def poll(
        self, topics: Collection[str], wait_ms: int = 0
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        if frozenset(topics) != self._topics:
            self._topics = frozenset(topics)
            self._consumer.subscribe(
                sorted(topics),
                on_partitions_assigned=self._on_assigned,
                on_partitions_revoked=self._on_revoked,
                on_partitions_lost=self._on_revoked,
            )
        self._given.clear()
        began = self._clock.monotonic()
        await self._consumer.poll(wait_ms)
        while self._topics and self._clock.monotonic() - began < self._wait_s:
            await self._consumer.poll(_POLL_MS)
        self._wait_s = 0.0
        owned = self._consumer.assignment()
        return owned, self._given & owned

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._consumer.committed(*partitions)
        return {each: offset.offset for each, offset in found.items() if offset is not None}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self._consumer.commit(dict(offsets))

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._consumer.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._consumer.end_offsets(partitions)

    async def close(self) -> None:
        await self._consumer.close()

    def _on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        some = list(partitions)
        self._consumer.pause(*some)
        self._given.update(some)
        self._wait_s = 0.0

    def _on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        del partitions
        self._wait_s = _REBALANCE_S
