"""An old disk returns in place of its replacement, while the replicas with newer records are down."""

import asyncio
from typing import Any

import pytest
from lost_disks import TWO, create, fill, go_on_without, image, keys_in, known, refused, swap

from odradek.clients import Admin
from odradek.clients.admin import NewTopic
from odradek.log.directories import log_manager
from odradek.log.directories.directory_loading import FoundLog, OpenedLog
from odradek.log.segments.open_files import FilePool
from odradek.metadata import follower, paths
from odradek.metadata.nodes import NO_LEADER
from odradek.metadata.store import ANY_VERSION, SessionExpired
from odradek.model import ConfigurationError, KafkaError, StorageError, TopicPartition
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Survival
from odradek.testing.disk import PowerCutError
from odradek.testing.world import World, until

KEY = TopicPartition("t", 0)


@pytest.mark.parametrize("brokers", [2, 3])
@pytest.mark.parametrize("ends_cleanly", [False, True], ids=["killed", "stopped"])
def test_a_broker_that_starts_first_with_an_old_disk_does_not_lead(seed: int, brokers: int, ends_cleanly: bool) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=4, replicas=brokers)
        lost = keys_in(world, 0, "/b")
        for key in lost:
            await fill(world, "t", key.partition, b"1")
        await world.stop(0)
        swap(world, 0, "/b", "/old")
        await world.start(0)
        await until(lambda: all(len(image(world, key).isr) == brokers for key in lost))
        for key in lost:
            await fill(world, "t", key.partition, b"2")
        for number in range(brokers):
            await world.kill(number)
        swap(world, 0, "/old", "/b", "/newer")
        for attempt in range(2):
            await world.start(0)
            await until(lambda: all(image(world, key).leader == NO_LEADER for key in lost))
            if not attempt:
                await (world.stop(0) if ends_cleanly else world.kill(0))
        for number in range(1, brokers):
            await world.start(number)
        await until(lambda: all(len(image(world, key).isr) == brokers for key in lost))
        found = await world.read("t", 4)
        assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)

    World(seed, TWO, brokers=brokers, noticed_at_once=False).play(scene)


def test_a_broker_with_an_old_disk_does_not_lead_while_the_newer_one_is_offline(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (key,) = keys_in(world, 0, "/b")
        await go_on_without(world, "/b", key)
        disk = world.simulation.disk("broker")
        disk.broken.add("/b")
        world._config["log.dirs"] = "/a,/b,/old"
        await world.start()
        await until(lambda: image(world, key).leader == NO_LEADER)
        with pytest.raises(KafkaError, match="may have newer records"):
            world.running[0].partitions.leader(*key)
        await world.stop()
        disk.broken.clear()
        world._config["log.dirs"] = "/a,/b"
        await world.start()
        await until(lambda: image(world, key).leader == 0)
        assert (await world.read("t", 2))[key.partition] == [b"2"]

    World(seed, TWO).play(scene)


def test_logs_created_beside_superseded_ones_are_not_superseded(seed: int) -> None:
    """Neither in a directory that is new, nor in the old one itself."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await go_on_without(world, "/data", KEY)
        swap(world, 0, "/old", "/data", "/newer")
        world._config["log.dirs"] = "/data,/more"
        for attempt in range(3):
            await world.start()
            await until(lambda: image(world, TopicPartition("t", 0)).leader == NO_LEADER)
            if not attempt:
                await create(world, "u", partitions=2, replicas=1)
                assert keys_in(world, 0, "/data", "u")
                assert keys_in(world, 0, "/more", "u")
                await fill(world, "u", 0, b"0")
                await fill(world, "u", 1, b"1")
            await until(lambda: all(image(world, TopicPartition("u", number)).leader == 0 for number in (0, 1)))
            assert await world.read("u", 2) == {0: [b"0"], 1: [b"1"]}
            await world.stop()
        world._config["log.dirs"] = "/newer,/more"
        await world.start()
        await until(lambda: image(world, TopicPartition("t", 0)).leader == 0)
        assert await world.read("t", 1) == {0: [b"2"]}

    World(seed).play(scene)


@pytest.mark.parametrize("operations", range(10, 17))
def test_an_interrupted_first_start_after_an_upgrade_recreates_no_logs(seed: int, operations: int) -> None:
    """The tree had no word of directories; the power goes while the broker makes a new one its own."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=2, replicas=1)
        (key,) = keys_in(world, 0, "/b")
        await fill(world, "t", key.partition, b"1")
        await world.store(0).delete(paths.broker_directories(0))
        await world.stop()
        swap(world, 0, "/b", "/unmounted")
        disk = world.simulation.disk("broker")
        disk.cut_power_at(disk.operations + operations)
        try:
            await world.start()
        except PowerCutError:
            pass
        else:
            await world.kill()
        world.simulation.cut_power("broker", Survival.KEEP)
        await world.start()
        await until(lambda: image(world, key).leader == NO_LEADER)
        refused(world, 0, key)
        await world.stop()
        swap(world, 0, "/unmounted", "/b", "/empty")
        await world.start()
        await until(lambda: image(world, key).leader == 0)
        assert (await world.read("t", 2))[key.partition] == [b"1"]

    World(seed, {"log.dirs": "/b,/a"}).play(scene)


class ForgetfulStore(MemoryStore):
    """One whose session expires when the broker's directories are written, which happens nevertheless."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.first = self.session_id

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        written = await super().set(path, data, version)
        if path.startswith(paths.BROKER_DIRECTORIES) and self.session_id == self.first:
            self.tree.expire(self.session_id)
            raise SessionExpired
        return written


def test_an_expiring_session_does_not_accept_other_directories(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await world.stop()
        swap(world, 0, "/data", "/old")
        await world.start()
        await world.stop()
        swap(world, 0, "/old", "/data", "/newer")
        world.new_store = ForgetfulStore
        await world.start()
        assert world.running[0]._has_its_directories is False

    World(seed).play(scene)


def test_a_broker_whose_id_is_taken_does_not_change_the_stored_directories(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        before = await known(world, 0)
        world.hosts.append("intruder")
        world._config["broker.id"] = "0"
        with pytest.raises(ConfigurationError, match="the broker id 0 is taken by the broker at broker:9092"):
            await world.start(1)
        assert await known(world, 0) == before

    World(seed).play(scene)


def test_an_unreadable_partition_state_does_not_mean_an_empty_partition(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await fill(world, "t", 0, b"1")
        key = TopicPartition("t", 0)
        store = MemoryStore(world.tree)
        path = paths.partition_state(key)
        node = await store.get(path)
        assert node is not None
        await world.stop()
        swap(world, 0, "/data", "/unmounted")
        await store.set(path, b"broken")
        await world.start()
        await world.stop()
        await store.set(path, node.data)
        await world.start()
        await until(lambda: image(world, key).leader == NO_LEADER)
        refused(world, 0, key)
        await world.stop()
        swap(world, 0, "/unmounted", "/data", "/empty")
        await world.start()
        await until(lambda: image(world, key).leader == 0)
        assert await world.read("t", 1) == {0: [b"1"]}
        await store.close()

    World(seed).play(scene)


def test_a_busy_controller_elects_no_leader_from_its_old_image(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All who were in sync are back before it looks who lives, so that nothing seems to have changed."""
    can_look, read_brokers = asyncio.Event(), follower.read_brokers

    async def read_when_it_can(*arguments: Any) -> Any:
        await can_look.wait()
        return await read_brokers(*arguments)

    async def scene(world: World) -> None:
        await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
        old, other = (number for number, broker in world.running.items() if not broker.metadata_loop.is_controller)
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.create_topics([NewTopic(name="t", assignments={number: [old, other] for number in range(2)})])
        await until(lambda: all(len(world.running[number].logs) == 2 for number in (old, other)))
        lost = keys_in(world, old, "/data")
        for key in lost:
            await fill(world, "t", key.partition, b"1")
        await world.stop(old)
        swap(world, old, "/data", "/old")
        await world.start(old)
        await until(lambda: all(len(image(world, key).isr) == 2 for key in lost))
        await until(lambda: all(image(world, key).leader == old for key in lost), within_s=1000)
        for key in lost:
            await fill(world, "t", key.partition, b"2")
        await world.kill(old)
        await world.kill(other)
        swap(world, old, "/old", "/data", "/newer")
        monkeypatch.setattr(follower, "read_brokers", read_when_it_can)
        starts = []
        for number, seconds in ((old, 60), (other, 10)):
            starts.append(asyncio.create_task(world.start(number)))
            await asyncio.sleep(seconds)
        can_look.set()
        await asyncio.gather(*starts)
        await until(lambda: all(len(image(world, key).isr) == 2 for key in lost))
        found = await world.read("t", 2)
        assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)

    World(seed, brokers=3, noticed_at_once=False).play(scene)


def test_a_superseded_log_that_cannot_be_opened_stays_superseded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_nothing(pool: FilePool, found: FoundLog, *arguments: Any) -> OpenedLog:
        return OpenedLog(found=found, log=None, topic_id=None, error=StorageError("too many open files"))

    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=1)
        await go_on_without(world, "/data", KEY)
        swap(world, 0, "/old", "/data", "/newer")
        await world.start()
        await until(lambda: image(world, KEY).leader == NO_LEADER)
        await world.stop()
        with monkeypatch.context() as patch:
            patch.setattr(log_manager, "open_found", open_nothing)
            await world.start()
            await world.stop()
        await world.start()
        await asyncio.sleep(5)
        assert image(world, KEY).leader == NO_LEADER

    World(seed).play(scene)


def test_an_unreadable_partition_state_does_not_prevent_a_start_after_a_crash(seed: int) -> None:
    async def scene(world: World) -> None:
        await create(world, "t", partitions=1, replicas=2)
        number = next(number for number, broker in world.running.items() if not broker.metadata_loop.is_controller)
        await world.kill(number)
        await world.store(1 - number).set(paths.partition_state(TopicPartition("t", 0)), b"broken", ANY_VERSION)
        await world.start(number)
        assert number in world.running

    World(seed, brokers=2).play(scene)
