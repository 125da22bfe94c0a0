"""A broker updates only the changed partitions of a topic, which may have thousands."""

import pytest
from msgspec.structs import replace

from odradek.broker.replication.follower import Follower
from odradek.broker.replication.partition import Partition
from odradek.metadata.image import MetadataDelta, PartitionImage, TopicImage
from odradek.model import StorageError, TopicPartition
from odradek.simulation.world import World, until
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
