"""The contexts of one kind of coordinator: elections, keys, markers, and the end of the broker (M6)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.broker.coordinators.coordinator_context import CoordinatorState
from odradek.broker.coordinators.machine import Producer
from odradek.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime, TopicKind
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import ClusterImage, PartitionImage, TopicImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.testing import Simulation
from tests.broker.coordinators.counter_machine import Add, Await, ControlledPartition, Counters, Get, TotalCodec
from tests.broker.coordinators.test_coordinator_context import COMMIT_TIMEOUT_MS, code_of
from tests.world.scenes import played_by

TOPIC = "__toys"
KEYS = {coordinator_partition(key, 2): key for key in "abcd"}
"""A key of each partition."""


class Leaders:
    """The partitions that the broker leads."""

    def __init__(self) -> None:
        self.callback: Callable[[TopicPartition, Partition | None], None] = lambda *_: None

    def on_leadership(self, callback: Callable[[TopicPartition, Partition | None], None]) -> None:
        self.callback = callback

    def elect(self, number: int, partition: ControlledPartition | None, topic: str = TOPIC) -> None:
        self.callback(TopicPartition(topic, number), cast("Partition | None", partition))


class Scene:
    """A runtime of two partitions."""

    def __init__(self, simulation: Simulation) -> None:
        kind: CoordinatorKind[Any, Any, Counters] = CoordinatorKind(
            topic=TopicKind(name=TOPIC, prefix="offsets.topic", config=lambda _: {}),
            new_machine=lambda _: Counters(),
            codec=TotalCodec(),
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
        )
        partition = PartitionImage(replicas=(0,), isr=(0,), leader=0, leader_epoch=0)
        topic = TopicImage(name=TOPIC, topic_id=UUID(int=1), partitions={0: partition, 1: partition})
        metadata = MetadataCache(BrokerConfig())
        metadata.image = ClusterImage(topics={TOPIC: topic})
        self.leaders = Leaders()
        self.runtime = CoordinatorRuntime(
            kind, metadata, simulation.clock, cast("Any", self.leaders), create_topic=cast("Any", None)
        )
        self.runtime.start()

    async def elect(self, number: int, partition: ControlledPartition | None = None) -> ControlledPartition:
        partition = partition or ControlledPartition()
        self.leaders.elect(number, partition)
        await asyncio.sleep(0.1)
        return partition


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def main() -> None:
        await scene(Scene(simulation))

    simulation.run(main())


@played_by(play)
async def test_a_key_belongs_to_the_partition_that_it_hashes_to(at: Scene) -> None:
    assert await code_of(at.runtime.submit(KEYS[0], Get())) is ErrorCode.not_coordinator
    partition = await at.elect(0)
    added = at.runtime.submit(KEYS[0], Add(1))
    partition.commit()
    assert await added == 1
    assert await code_of(at.runtime.submit(KEYS[1], Get())) is ErrorCode.not_coordinator


@played_by(play)
async def test_elections_in_quick_succession_leave_one_shard_which_has_the_log(at: Scene) -> None:
    partition = await at.elect(0)
    added, waiting = at.runtime.submit(KEYS[0], Add(1)), at.runtime.submit(KEYS[0], Await(1_000_000))
    partition.commit()
    assert await added == 1
    for _ in range(3):
        at.leaders.elect(0, partition)
        await asyncio.sleep(0)
    at.leaders.elect(0, None)
    at.leaders.elect(0, partition)
    assert await code_of(waiting) is ErrorCode.not_coordinator
    with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
        list(at.runtime.contexts())
    await asyncio.sleep(1)
    assert [context.state for context in at.runtime.contexts()] == [CoordinatorState.ACTIVE]
    assert await at.runtime.submit(KEYS[0], Get()) == 1
    assert len([task for task in asyncio.all_tasks() if "loading" in task.get_name()]) == 0


@played_by(play)
async def test_a_marker_in_another_topic_changes_nothing(at: Scene) -> None:
    partition = await at.elect(0)
    at.runtime.submit(KEYS[0], Add(1, Producer(producer_id=7, epoch=0)))
    partition.commit()
    at.runtime.marker_appended(TopicPartition("t", 0), 7, 1, is_commit=True)
    at.runtime.marker_appended(TopicPartition(TOPIC, 1), 7, 1, is_commit=True)
    assert await at.runtime.submit(KEYS[0], Get()) == 0
    at.runtime.marker_appended(TopicPartition(TOPIC, 0), 7, 1, is_commit=True)
    assert await at.runtime.submit(KEYS[0], Get()) == 1


@pytest.mark.parametrize("end", ["stop", "kill"])
@played_by(play)
async def test_a_runtime_that_has_ended_loads_nothing_any_more(at: Scene, *, end: str) -> None:
    await at.elect(0)
    getattr(at.runtime, end)()
    at.leaders.elect(1, ControlledPartition())
    assert await code_of(at.runtime.submit(KEYS[1], Get())) is ErrorCode.not_coordinator
    assert [task for task in asyncio.all_tasks() if "loading" in task.get_name()] == []
