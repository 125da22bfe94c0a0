"""Scenes with brokers' disks: what tests do with directories, and how they see what became of the logs in them."""

from itertools import pairwise

import pytest

from odradek.broker.cluster.registration.directories import forget_directories
from odradek.metadata import paths
from odradek.metadata.nodes import BrokerDirectoriesNode, KnownDirectory
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.world.topics import write

TWO = {"log.dirs": "/a,/b"}


def keys_in(world: World, number: int, directory: str, topic: str = "t") -> list[TopicPartition]:
    """The partitions of a topic whose logs a broker has in a directory."""
    logs = world.running[number].logs.logs
    return sorted(key for key, log in logs.items() if log.directory.startswith(f"{directory}/{topic}-"))


def swap(world: World, number: int, *names: str) -> None:
    """Give directories of a broker's disk other names, one after the other: `a b c` makes b of a, and c of b before."""
    disk = world.simulation.disk(world.hosts[number])
    for old, new in reversed(list(pairwise(names))):
        disk.rename(old, new)


async def known(world: World, number: int) -> dict[str, KnownDirectory]:
    """Return a broker's directories stored in the tree."""
    path, store = paths.broker_directories(number), MemoryStore(world.tree)
    node = await store.get(path)
    await store.close()
    assert node is not None
    return dict(BrokerDirectoriesNode.decode(path, node.data).directories)


async def forget(world: World, number: int, *ids: str) -> list[str]:
    """Give up directories of a broker, which may run or not."""
    store = MemoryStore(world.tree)
    try:
        return await forget_directories(store, number, ids)
    finally:
        await store.close()


async def start_refused(world: World, number: int, match: str) -> str:
    """Start a broker, which must not start, and return the error."""
    with pytest.raises(StorageError, match=match) as error:
        await world.start(number)
    assert str(error.value).count("odradek metadata forget-directory") == 1
    return str(error.value)


async def go_on_without(world: World, directory: str, key: TopicPartition) -> None:
    """Write a record to a broker's log, and another one on a new disk after the first disk was forgotten.

    The broker is stopped then, and the first disk is at `/old`.
    """
    await write(world, key.topic, key.partition, b"1")
    (gone,) = [each for each, known_as in (await known(world, 0)).items() if known_as.path == directory]
    await world.stop()
    swap(world, 0, directory, "/old")
    await forget(world, 0, gone)
    await world.start()
    await write(world, key.topic, key.partition, b"2")
    await world.stop()


def refused(world: World, number: int, key: TopicPartition) -> None:
    assert world.running[number].logs.get(key) is None
    with pytest.raises(KafkaError) as error:
        world.running[number].partitions.leader(*key)
    assert error.value.code == ErrorCode.kafka_storage_error
