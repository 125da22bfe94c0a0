"""A leader's ISR changes are sent to the controller, whenever they arise (M1)."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.alter_partition_manager import AlterPartitionManager
from odradek.broker.replication.alter_partition_requests import WrittenIsr
from odradek.broker.replication.machine import IsrChange
from odradek.config import BrokerConfig
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.testing import Simulation

CHANGE = IsrChange(isr=(1, 2), broker_epochs=(-1, -1), leader_epoch=3, partition_epoch=4)


class LedPartition:
    """A partition that requests an ISR change until it is sent."""

    def __init__(self, number: int) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.isr: tuple[int, ...] = (1,)

    def is_pending_isr(self, change: IsrChange) -> bool:
        return self.isr != change.isr

    def handle_isr_change(self, change: IsrChange, *, isr: Any, partition_epoch: int) -> None:
        del change, partition_epoch
        self.isr = isr


@pytest.mark.parametrize("turns", range(12))
def test_an_isr_change_that_arrives_as_the_previous_request_ends_is_sent(seed, turns):
    """Whatever the turn of the loop in which it comes."""
    simulation = Simulation(seed)
    asked = []

    async def send(changes: dict[TopicPartition, IsrChange]) -> dict[TopicPartition, WrittenIsr]:
        asked.extend(changes)
        return {
            key: WrittenIsr(leader_id=1, isr=each.isr, leader_epoch=3, partition_epoch=5)
            for key, each in changes.items()
        }

    async def main() -> None:
        metadata, clock = MetadataCache(BrokerConfig()), simulation.runtime().clock
        sets: Any = AlterPartitionManager(metadata, clock, cast("Any", None), check_fence=lambda: True)
        sets._requests = SimpleNamespace(send=send)
        first, second = LedPartition(0), LedPartition(1)
        sets.submit(first, CHANGE)
        for _ in range(turns):
            await asyncio.sleep(0)
        sets.submit(second, CHANGE)
        await asyncio.sleep(10)
        assert first.isr == second.isr == (1, 2)
        assert sorted(asked) == [first.topic_partition, second.topic_partition]
        sets.stop()

    simulation.run(main())


def test_isr_changes_that_a_controller_refuses_as_not_the_controller_are_sent_again_with_backoff(seed):
    simulation = Simulation(seed)
    sent_at: list[float] = []

    async def send(changes: dict[TopicPartition, IsrChange]) -> dict[TopicPartition, KafkaError]:
        sent_at.append(asyncio.get_running_loop().time())
        return {key: KafkaError(ErrorCode.not_controller) for key in changes}

    async def main() -> None:
        metadata, clock = MetadataCache(BrokerConfig()), simulation.runtime().clock
        channel: Any = SimpleNamespace(back_off=asyncio.sleep)
        manager: Any = AlterPartitionManager(metadata, clock, channel, check_fence=lambda: True)
        manager._requests = SimpleNamespace(send=send)
        manager.submit(LedPartition(0), CHANGE)
        await asyncio.sleep(3)
        pauses = [later - earlier for earlier, later in pairwise(sent_at)]
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])
        manager.stop()

    simulation.run(main())
