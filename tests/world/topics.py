"""Topics of a `World`: they are created and filled, and tests ask for their leaders and what the controller knows."""

from odradek.broker.lifecycle import Broker
from odradek.broker.replication.partition import Partition
from odradek.metadata.image import PartitionImage
from odradek.model import TopicPartition
from odradek.simulation.world import World, until

T0 = TopicPartition("t", 0)


async def registered(world: World) -> None:
    """Wait until all running brokers know each other, and no other one."""
    ids = set(world.running)
    await until(lambda: all(set(broker.image.brokers) == ids for broker in world.running.values()))


async def create(
    world: World, topic: str = "t", *, partitions: int = 1, replicas: int | None = None, **config: str
) -> None:
    """Create a topic, by default on all brokers, and wait until its replicas on running brokers lead or follow."""
    await registered(world)
    count = len(world.hosts) if replicas is None else replicas
    async with world.admin() as admin:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        await admin.create_topic(topic, partitions=partitions, replication_factor=count, configs=settings)
    places = [TopicPartition(topic, number) for number in range(partitions)]

    def is_served(key: TopicPartition) -> bool:
        known = world.running[min(world.running)].image.partition(key)
        replicas = [broker.partitions for number, broker in world.running.items() if known and number in known.replicas]
        return len(leaders(world, key)) == 1 and sum(key in each.followers for each in replicas) == len(replicas) - 1

    await until(lambda: all(map(is_served, places)))


async def fill(
    world: World,
    count: int,
    *,
    first: int = 0,
    topic: str = "t",
    partition: int = 0,
    is_each_awaited: bool = False,
    **settings: object,
) -> None:
    """Write `count` records with their numbers as values; if each is awaited, it has a batch of its own."""
    async with world.producer("writer", **settings) as producer:
        for value in range(first, first + count):
            delivery = await producer.send(topic, b"%d" % value, partition=partition)
            if is_each_awaited:
                await delivery


async def write(world: World, topic: str, partition: int, *values: bytes) -> None:
    """Write records, each in a batch of its own."""
    async with world.producer("writer") as producer:
        for value in values:
            await (await producer.send(topic, value, partition=partition))


def controller(world: World) -> int:
    (found,) = (number for number, broker in world.running.items() if broker.metadata_loop.is_controller)
    return found


async def controller_of(world: World) -> Broker:
    """Return the controller that all agree on, in a cluster that is whole."""
    await registered(world)
    return world.running[controller(world)]


def image(world: World, key: TopicPartition = T0, number: int | None = None) -> PartitionImage:
    """Return a broker's image of a partition; by default the controller's."""
    found = world.running[controller(world) if number is None else number].image.partition(key)
    assert found is not None
    return found


def leaders(world: World, key: TopicPartition = T0) -> dict[int, Partition]:
    """Return the running brokers that consider themselves the partition's leader."""
    found = {number: broker.partitions.get(key) for number, broker in world.running.items()}
    return {number: partition for number, partition in found.items() if partition is not None}


def leader_of(world: World, key: TopicPartition = T0) -> tuple[int, Partition]:
    (found,) = leaders(world, key).items()
    return found
