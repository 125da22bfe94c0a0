"""A broker starts after its second disk changed: each change of a disk, in each position that a broker may be in.

The disk is `/b` of `/a,/b`. Whatever became of it, no log is made anew as if nothing had been acknowledged.
"""

import asyncio
from typing import NamedTuple

import pytest

from odradek.broker.log.directories.directory_loading import remove_tree
from odradek.clients.admin import NewTopic
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER
from odradek.model import ErrorCode, TopicPartition
from odradek.simulation.world import World, until
from tests.world.lost_disks import TWO, forget, keys_in, known, refused, swap
from tests.world.scenes import in_world
from tests.world.topics import create, image, write


class Change(NamedTuple):
    """A change of a disk while its broker is down."""

    name: str
    is_read: bool = True
    """Whether the broker can read what is at `/b`, and will have its replicas there again."""
    log_dirs: str = "/a,/b"
    is_forgotten: bool = False
    is_upgrade: bool = False
    """Whether the tree has no word of directories, as if an earlier release had run before."""
    said: str = "is missing, and with it 1 logs"

    async def prepare(self, world: World, number: int, lost: list[TopicPartition]) -> None:
        """With the running broker, which the change may need another disk of."""
        if self.name == "old":
            await world.stop(number)
            swap(world, number, "/b", "/old")
            await world.start(number)
            count = len(world.hosts)
            await until(lambda: all(len(image(world, key).isr) == count for key in lost))
        if self.is_upgrade:
            await world.store(number).delete(paths.broker_directories(number))
            await world.stop(number)
            await world.start(number)
            assert len(await world.read("t", 2)) == 2, "the directories that it has now count"
            await world.store(number).delete(paths.broker_directories(number))

    async def make(self, world: World, number: int, lost: list[TopicPartition]) -> None:
        disk = world.simulation.disk(world.hosts[number])
        if self.name == "failed":
            disk.broken.add("/b")
        elif self.name == "old":
            swap(world, number, "/old", "/b", "/newer")
        elif self.name == "without the last segments":
            for key in lost:
                disk.remove(f"/b/{key}/{max(name for name in disk.list(f'/b/{key}') if name.endswith('.log'))}")
        elif self.name == "without folders":
            for key in lost:
                remove_tree(disk, f"/b/{key}")
        elif self.log_dirs == "/a,/b" or self.is_forgotten:
            swap(world, number, "/b", "/dead")
        if self.is_forgotten:
            (gone,) = [each for each, directory in (await known(world, number)).items() if directory.path == "/b"]
            await forget(world, number, gone)

    def undo(self, world: World, number: int) -> None:
        disk = world.simulation.disk(world.hosts[number])
        disk.broken.clear()
        if disk.exists("/dead"):
            swap(world, number, "/dead", "/b", "/empty")


FAILED = Change("failed", is_read=False, said="the data directory /b cannot be used")
NEW = Change("new")
REMOVED = Change("removed from log.dirs", is_read=False, log_dirs="/a")
UPGRADED = Change("new after an upgrade", is_upgrade=True)
KEPT = [FAILED, NEW, REMOVED, UPGRADED]
"""Those after which the broker expects its logs again."""
REPLACED = [
    FAILED,
    NEW,
    Change("forgotten", is_forgotten=True),
    Change("forgotten and removed", is_read=False, log_dirs="/a", is_forgotten=True),
    Change("old"),
    Change("without the last segments"),
    Change("without folders"),
]

ALL = [TopicPartition("t", number) for number in range(4)]


@pytest.mark.parametrize("change", KEPT, ids=lambda each: each.name)
@in_world(TWO)
async def test_the_only_replicas_are_offline_until_their_disk_is_back(
    world: World, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    """The other disk serves, and has all that is new: it would be hidden when the old one is mounted again."""
    await create(world, "t", partitions=2, replicas=1)
    (here,), (there,) = keys_in(world, 0, "/a"), keys_in(world, 0, "/b")
    for key in (here, there):
        await write(world, "t", key.partition, b"%d" % key.partition)
    directory_id = next(each for each, directory in (await known(world, 0)).items() if directory.path == "/b")
    await change.prepare(world, 0, [there])
    await world.stop()
    await change.make(world, 0, [there])
    for attempt in range(2):
        caplog.clear()
        await world.start(log_dirs=change.log_dirs)
        await until(lambda: image(world, there).leader == NO_LEADER)
        assert (image(world, there).isr, image(world, here).leader) == ((0,), 0)
        refused(world, 0, there)
        [line] = [each for each in caplog.messages if change.said in each]
        if change in (NEW, REMOVED):
            assert f"data directory /b (directory.id {directory_id}) is missing, and with it 1 logs" in line
            assert f"no other replica is in sync of {there};" in line
            command = f"odradek metadata forget-directory --metadata URL --broker-id 0 {directory_id}"
            assert (command if change is NEW else "add /b to log.dirs (--data-dir), and restart this broker") in line
        assert list(world.running[0].logs.directories.offline) == ([] if change is REMOVED else ["/b"])
        await write(world, "t", here.partition, b"more")
        await create(world, f"u{attempt}", partitions=2, replicas=1)
        await write(world, f"u{attempt}", 1, b"u")
        assert len(keys_in(world, 0, "/a", f"u{attempt}")) == 2
        if change is FAILED:
            async with world.admin() as admin:
                described = {each.log_dir: each.error_code for each in await admin.describe_log_dirs(0)}
            assert described == {"/a": ErrorCode.none, "/b": ErrorCode.kafka_storage_error}
        await world.stop()
    assert not world.simulation.disk("broker").exists(f"/a/{there}")
    change.undo(world, 0)
    await world.start(log_dirs="/b,/a")
    await until(lambda: image(world, there).leader == 0)
    found = await world.read("t", 2)
    assert found[here.partition] == [b"%d" % here.partition, b"more", b"more"]
    assert found[there.partition] == [b"%d" % there.partition]
    assert await world.read("u1", 2) == {0: [], 1: [b"u"]}


@pytest.mark.long
@pytest.mark.parametrize("is_controller", [False, True], ids=["another broker's, stopped", "the controller's, killed"])
@pytest.mark.parametrize("change", REPLACED, ids=lambda each: each.name)
@in_world(TWO, brokers=3)
async def test_other_brokers_lead_and_replicate_what_a_disk_lacks(
    world: World, change: Change, is_controller: bool
) -> None:
    await create(world, "t", partitions=4, replicas=3)
    one = next(
        number for number, broker in world.running.items() if broker.metadata_loop.is_controller == is_controller
    )
    lost = keys_in(world, one, "/b")
    for key in lost:
        await write(world, "t", key.partition, b"1")
    await change.prepare(world, one, lost)
    for key in lost:
        await write(world, "t", key.partition, b"2")
    await (world.kill(one) if is_controller else world.stop(one))
    await change.make(world, one, lost)
    await world.start(one, log_dirs=change.log_dirs)
    if change is FAILED:
        await until(lambda: world.running[one].partitions.offline_count == 2)
        assert not any(world.simulation.disk(world.hosts[one]).exists(f"/a/{key}") for key in lost)
        await until(lambda: len(image(world, keys_in(world, one, "/a")[0]).isr) == 3)
        assert all(image(world, key).leader not in {one, NO_LEADER} for key in lost)
        assert all(one not in image(world, key).isr for key in lost)
    else:
        await until(lambda: all(one in image(world, key).isr for key in lost))
        assert keys_in(world, one, "/b" if change.is_read else "/a") == (lost if change.is_read else ALL)
        assert world.running[one].partitions.offline_count == 0
        assert [world.running[one].logs.logs[key].log_end_offset for key in lost] == [2, 2]
    for key in lost:
        await write(world, "t", key.partition, b"3")
    await world.stop(one)
    world.simulation.disk(world.hosts[one]).broken.clear()
    await world.start(one, log_dirs=change.log_dirs)
    await until(lambda: all(one in image(world, key).isr for key in lost))
    found = await world.read("t", 4)
    assert [found[key.partition] for key in lost] == [[b"1", b"2", b"3"]] * 2
    assert [world.running[one].logs.logs[key].log_end_offset for key in lost] == [3, 3]
    assert ",".join(sorted(each.path for each in (await known(world, one)).values())) == change.log_dirs


@pytest.mark.long
@pytest.mark.parametrize(("brokers", "ends_cleanly"), [(2, True), (3, False)], ids=["2, stopped", "3, killed"])
@pytest.mark.parametrize("change", REPLACED, ids=lambda each: each.name)
def test_a_broker_that_starts_first_without_all_records_does_not_lead(
    seed: int, change: Change, brokers: int, ends_cleanly: bool
) -> None:
    """The other in-sync replicas are down. A broker that is restarted meanwhile still knows what it lacks."""

    async def scene(world: World) -> None:
        await create(world, "t", partitions=4, replicas=brokers)
        lost = keys_in(world, 0, "/b")
        if change.is_forgotten:
            async with world.admin() as admin:
                await admin.create_topics([NewTopic(name="alone", assignments={0: [0], 1: [0]})])
            await until(lambda: len(world.running[0].logs) == 6)
        for key in lost:
            await write(world, "t", key.partition, b"1")
        await change.prepare(world, 0, lost)
        for key in lost:
            await write(world, "t", key.partition, b"2")
        await asyncio.sleep(70)  # the checkpoints are written
        for number in range(brokers):
            await world.kill(number)
        await change.make(world, 0, lost)
        for attempt in range(2):
            await world.start(0, log_dirs=change.log_dirs)
            await asyncio.sleep(30)
            assert {image(world, key).leader for key in lost} == {NO_LEADER}
            assert all(set(image(world, key).isr) == set(range(1, brokers)) for key in lost)
            alone = [TopicPartition("alone", number) for number in (0, 1) if change.is_forgotten]
            assert all(image(world, key).leader == 0 for key in alone), "what has no other replica is given up"
            if not attempt:
                await (world.stop(0) if ends_cleanly else world.kill(0))
        for number in range(1, brokers):
            await world.start(number)
        if change is FAILED:
            await until(lambda: all(image(world, key).leader in range(1, brokers) for key in lost))
            await world.stop(0)
            change.undo(world, 0)
            await world.start(0)
        await until(lambda: all(len(image(world, key).isr) == brokers for key in lost))
        found = await world.read("t", 4)
        assert [found[key.partition] for key in lost] == [[b"1", b"2"]] * len(lost)
        assert world.running[0].partitions.offline_count == 0

    World(seed, TWO, brokers=brokers, noticed_at_once=False).play(scene)
