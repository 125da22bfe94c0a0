"""Old tools write a topic's node without its id (KAFKA-14190), which must not make it another topic."""

import asyncio

import pytest
from msgspec.structs import replace

from odradek.metadata import paths
from odradek.metadata.nodes import TopicNode
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from tests.world.topics import create, write


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_topic_whose_id_an_old_tool_removed_gets_it_back_and_keeps_its_records(seed: int, brokers: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=3, replicas=brokers)
        for number in range(3):
            await write(world, "t", number, b"%d" % number)
        store, path = MemoryStore(world.tree), paths.topic("t")
        node = await store.get(path)
        assert node is not None
        topic = TopicNode.decode(path, node.data)
        await store.set(path, replace(topic, topic_id=None).encode())
        await asyncio.sleep(3)
        node = await store.get(path)
        assert node is not None
        assert TopicNode.decode(path, node.data) == topic
        await store.close()

        def is_whole() -> bool:
            images = [broker.image.topics["t"] for broker in world.running.values()]
            return all(
                each.topic_id == topic.topic_id and all(len(one.isr) == brokers for one in each.partitions.values())
                for each in images
            )

        await until(is_whole)
        assert await world.read("t", 3) == {0: [b"0"], 1: [b"1"], 2: [b"2"]}
        await write(world, "t", 0, b"more")
        assert (await world.read("t", 3))[0] == [b"0", b"more"]

    World(seed, brokers=brokers).play(scene)
