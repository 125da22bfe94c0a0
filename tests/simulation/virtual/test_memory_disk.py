"""The disk in memory: what it forgets, what it refuses, and that it forgets the same for the same seed."""

import asyncio
import errno
import random

import pytest

from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival
from odradek.simulation.virtual.disk_contents import SECTOR_BYTES


def disk_with(data: bytes, seed: int = 0) -> MemoryDisk:
    """A disk with the file `/d/f`, name and content synced."""
    disk = MemoryDisk(random.Random(seed))
    disk.make_directories("/d")
    disk.sync_directory("/")
    file = disk.open("/d/f", create=True)
    file.append([data])
    file.sync()
    disk.sync_directory("/d")
    return disk


def test_synced_data_survives_a_power_cut_and_unsynced_data_may_be_lost() -> None:
    disk = disk_with(b"old")
    disk.open("/d/f").append([b"new", b"er"])
    assert disk.read_file("/d/f") == b"oldnewer"
    disk.cut_power(Survival.LOSE)
    assert disk.read_file("/d/f") == b"old"


def test_writes_of_a_killed_process_survive() -> None:
    disk = disk_with(b"old")
    disk.open("/d/f").append([b"new"])
    disk.open("/d/g", create=True)
    disk.kill()
    assert disk.read_file("/d/f") == b"oldnew"
    assert disk.exists("/d/g")


def test_a_torn_tail_is_made_of_whole_sectors_old_or_new() -> None:
    seen = set()
    for seed in range(30):
        disk = disk_with(b"", seed)
        disk.open("/d/f").append([b"n" * SECTOR_BYTES * 4])
        disk.cut_power(Survival.TEAR)
        data = disk.read_file("/d/f")
        whole = [data[i : i + SECTOR_BYTES] for i in range(0, len(data), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 and sector[0] in b"n\0" for sector in whole)
        seen.add(tuple(sector[:1] for sector in whole))
    assert len(seen) > 10


def test_a_truncation_that_was_not_synced_may_be_undone() -> None:
    disk = disk_with(b"abcdef")
    file = disk.open("/d/f")
    file.truncate(2)
    file.append([b"XY"])
    assert disk.read_file("/d/f") == b"abXY"
    disk.cut_power(Survival.LOSE)
    assert disk.read_file("/d/f") == b"abcdef"


def test_names_survive_only_after_their_directory_was_synced() -> None:
    disk = disk_with(b"x")
    disk.open("/d/new", create=True).sync()
    disk.rename("/d/f", "/d/renamed")
    disk.cut_power(Survival.LOSE)
    assert disk.list("/d") == ["f"]


def test_directory_changes_survive_in_order() -> None:
    outcomes = set()
    for seed in range(40):
        disk = disk_with(b"x", seed)
        for name in "abc":
            disk.open(f"/d/{name}", create=True)
        disk.remove("/d/f")
        disk.cut_power(Survival.TEAR)
        outcomes.add("".join(disk.list("/d")))
    assert outcomes == {"f", "af", "abf", "abcf", "abc"}


def test_a_replaced_file_is_whole_whenever_the_power_goes() -> None:
    for operation in range(1, 8):
        for seed in range(8):
            disk = disk_with(b"old", seed)
            disk.cut_power_at(disk.operations + operation)
            try:
                disk.replace_file("/d/f", b"something new")
            except PowerCutError:
                disk.cut_power()
                assert disk.read_file("/d/f") in {b"old", b"something new"}
            else:
                disk.cut_power(Survival.LOSE)
                assert disk.read_file("/d/f") == b"something new"


def test_the_same_seed_forgets_the_same() -> None:
    def run(seed: int) -> bytes:
        disk = disk_with(b"0" * 3000, seed)
        disk.open("/d/f").append([b"1" * 9000])
        disk.cut_power(Survival.TEAR)
        return disk.read_file("/d/f")

    assert [run(seed) for seed in range(10)] == [run(seed) for seed in range(10)]
    assert len({run(seed) for seed in range(10)}) > 3


def test_after_the_power_is_cut_nothing_works_until_the_next_process() -> None:
    disk = disk_with(b"x")
    file = disk.open("/d/f")
    disk.cut_power_at(disk.operations + 1)
    with pytest.raises(PowerCutError):
        file.append([b"y" * 100])
    with pytest.raises(PowerCutError):
        disk.open("/d/f")
    disk.cut_power(Survival.KEEP)
    with pytest.raises(PowerCutError):
        file.read(0, 1)
    assert disk.open("/d/f").read(0, 1) == b"x"


def test_a_full_disk_writes_what_fits() -> None:
    disk = disk_with(b"12345")
    disk.capacity_bytes = 8
    file = disk.open("/d/f")
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"67890"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_file("/d/f") == b"12345678"


def test_data_of_a_failed_sync_is_not_saved_by_a_later_one() -> None:
    disk = disk_with(b"old")
    disk.fail_next("sync", errno.EIO, path_end="/f")
    file = disk.open("/d/f")
    file.append([b"new"])
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append([b"er"])
    file.sync()
    disk.cut_power(Survival.LOSE)
    assert disk.read_file("/d/f") == b"old"


def test_a_lock_names_its_holder_and_ends_with_the_process() -> None:
    disk = MemoryDisk(process_id=77)
    lock = disk.lock("/l", "me")
    with pytest.raises(BlockingIOError, match=r"^process 77 \(me\)$"):
        disk.lock("/l", "you")
    assert disk.lock_holder("/l") == "process 77 (me)"
    lock.release()
    assert disk.lock_holder("/l") is None
    disk.lock("/l", "you")
    disk.kill()
    disk.lock("/l", "them")
    assert disk.read_file("/l") == b"process 77 (them)"
    disk.kill()
    disk.capacity_bytes = 3
    disk.lock("/l", "without room")
    with pytest.raises(BlockingIOError, match="without room"):
        disk.lock("/l", "you")


def test_files_do_not_move_between_directories_in_one_step() -> None:
    disk = disk_with(b"x")
    disk.make_directories("/e")
    with pytest.raises(OSError, match="cross-device"):
        disk.rename("/d/f", "/e/f")
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory("/d")
    with pytest.raises(FileNotFoundError):
        disk.open("/d/none")
    with pytest.raises(NotADirectoryError):
        disk.list("/d/f")


def test_submitted_work_runs_in_order_in_the_running_loop() -> None:
    async def main(disk: MemoryDisk) -> list[int]:
        done: list[int] = []
        futures = [disk.submit(lambda number=number: done.append(number)) for number in range(5)]
        assert not done
        await asyncio.gather(*futures)
        return done

    assert asyncio.run(main(MemoryDisk())) == [0, 1, 2, 3, 4]


def test_submitted_work_raises_its_error_where_it_is_awaited() -> None:
    async def main() -> None:
        disk = disk_with(b"x")
        disk.capacity_bytes = 0
        await disk.submit(lambda: disk.open("/d/f").append([b"y"]))

    with pytest.raises(OSError, match="No space"):
        asyncio.run(main())


def test_the_room_is_what_the_capacity_leaves() -> None:
    disk = MemoryDisk()
    disk.make_directories("/data")
    assert disk.space("/data").usable_bytes > 1 << 40
    disk.capacity_bytes = 100
    disk.open("/data/f", create=True).append([b"x" * 30])
    assert disk.space("/data") == (100, 70)
    assert disk.absolute("data/./log") == "/data/log"
