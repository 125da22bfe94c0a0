"""A broker updates only the changed partitions of a topic, which may have thousands."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.alter_partition_manager import AlterPartitionManager, WrittenIsr
from odradek.broker.replication.follower import Follower
from odradek.broker.replication.machine.leader import IsrChange
from odradek.broker.replication.partition import Partition
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import MetadataDelta, PartitionImage, TopicImage
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition
from odradek.simulation.world import World, until
from odradek.testing import Simulation
from tests.world.scenes import in_world


def with_smaller_isr(topic: TopicImage, number: int) -> TopicImage:
    before = topic.partitions[number]
    after = replace(before, isr=(before.leader,), state_version=before.state_version + 1)
    return replace(topic, partitions={**topic.partitions, number: after})


def test_a_change_of_one_partition_updates_only_that_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    for kind in (Partition, Follower):
        usual = kind.update

        def update(self: Partition | Follower, image: PartitionImage, usual: object = usual) -> None:
            seen.append(self.topic_partition.partition)
            usual(self, image)  # type: ignore[operator]

        monkeypatch.setattr(kind, "update", update)

    async def scene(world: World) -> None:
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=6, replication_factor=2)
        brokers = list(world.running.values())
        await until(lambda: all(len([*each.partitions, *each.partitions.followers]) == 6 for each in brokers))
        for broker in brokers:
            old = broker.image
            topic = old.topics["t"]
            seen.clear()
            new = old.with_topics({"t": with_smaller_isr(topic, 2)})
            broker.partitions.apply(MetadataDelta.between(old, new))
            assert seen == [2]
            other = old.with_topics({"t": replace(new.topics["t"], config={"min.insync.replicas": "2"})})
            broker.partitions.apply(MetadataDelta.between(new, other))
            assert seen == [2, *range(6)], "what is set for the topic is of interest to all"
            assert {each.min_insync_replicas for each in broker.partitions} == {2}
            broker.partitions.apply(MetadataDelta.between(other, old))

    World(1, brokers=2).play(scene)


@in_world(seed=1, brokers=2)
async def test_offline_partitions_are_updated_with_each_change_of_their_topic(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=6, replication_factor=2)
    brokers = list(world.running.values())
    await until(lambda: all(len([*each.partitions, *each.partitions.followers]) == 6 for each in brokers))
    partitions, old = brokers[0].partitions, brokers[0].image
    key, follower = next(iter(partitions.followers.items()))
    partitions._follower_failed(follower, StorageError("it was too early"))
    assert partitions.offline_count == 1
    other = next(number for number in range(6) if TopicPartition("t", number) != key)
    new = old.with_topics({"t": with_smaller_isr(old.topics["t"], other)})
    partitions.apply(MetadataDelta.between(old, new))
    await partitions.wait_until_applied()
    assert (partitions.offline_count, key in partitions.followers) == (0, True)


# ---- Requests to the controller --------------------------------------------------------------------------------------

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


def test_isr_changes_are_sent_again_when_the_fence_could_not_be_checked(seed):
    """Closing the fence calls parts of the broker, which may fail."""
    simulation = Simulation(seed)
    checks = iter([KafkaError(ErrorCode.unknown_server_error), RuntimeError("planted")])

    def check_fence() -> None:
        error = next(checks, None)
        if error is not None:
            raise error

    async def send(changes: dict[TopicPartition, IsrChange]) -> dict[TopicPartition, WrittenIsr]:
        return {
            key: WrittenIsr(leader_id=1, isr=each.isr, leader_epoch=3, partition_epoch=5)
            for key, each in changes.items()
        }

    async def main() -> None:
        metadata, clock = MetadataCache(BrokerConfig()), simulation.runtime().clock
        channel: Any = SimpleNamespace(back_off=asyncio.sleep)
        manager: Any = AlterPartitionManager(metadata, clock, channel, check_fence=check_fence)
        manager._requests = SimpleNamespace(send=send)
        partition = LedPartition(0)
        manager.submit(partition, CHANGE)
        await asyncio.sleep(10)
        assert partition.isr == (1, 2)
        manager.stop()

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


def test_an_isr_change_that_could_not_be_sent_does_not_replace_a_newer_one(seed):
    simulation = Simulation(seed)
    newer, sent = replace(CHANGE, isr=(1, 3)), list[IsrChange]()

    async def main() -> None:
        metadata, clock = MetadataCache(BrokerConfig()), simulation.runtime().clock
        channel: Any = SimpleNamespace(back_off=asyncio.sleep)
        manager: Any = AlterPartitionManager(metadata, clock, channel, check_fence=lambda: True)
        partition = LedPartition(0)

        async def send(changes: dict[TopicPartition, IsrChange]) -> dict[TopicPartition, KafkaError]:
            sent.extend(changes.values())
            if len(sent) == 1:
                manager.submit(partition, newer)
            return {}

        manager._requests = SimpleNamespace(send=send)
        manager.submit(partition, CHANGE)
        await asyncio.sleep(1)
        assert sent[0] == CHANGE
        assert set(map(id, sent[1:])) == {id(newer)}
        manager.stop()

    simulation.run(main())
