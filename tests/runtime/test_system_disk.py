"""The machine's disk behind the interface: large gathered writes, locks between processes, submitted work."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from odradek.runtime import SystemDisk


def test_a_gathered_write_takes_more_buffers_than_the_kernel_does_at_once(tmp_path: Path) -> None:
    file = SystemDisk().open(f"{tmp_path}/f", create=True)
    buffers = [b"%d," % number for number in range(3000)]
    file.append([b"head"])
    file.append(buffers)
    assert file.size() == 4 + sum(map(len, buffers))
    assert file.read(4, 100_000) == b"".join(buffers)
    file.truncate(6)
    file.append([b"!"])
    file.sync()
    file.close()
    assert (tmp_path / "f").read_bytes() == b"head0,!"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.replace_file(f"{tmp_path}/f", b"first, and longer")
    disk.replace_file(f"{tmp_path}/f", b"second")
    assert disk.read_file(f"{tmp_path}/f") == b"second"
    assert disk.list(str(tmp_path)) == ["f"]
    assert disk.size(f"{tmp_path}/f") == 6


def test_the_error_of_another_process_names_the_lock_holder(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    lock = SystemDisk().lock(path, "the test")
    attempt = f"from odradek.runtime import SystemDisk; SystemDisk().lock({path!r}, 'other')"
    refused = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"process {os.getpid()} (the test)" in refused.stderr
    lock.release()
    lock.release()
    subprocess.run([sys.executable, "-c", attempt], check=True)


JAVAS_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked", flush=True)
    sys.stdin.read()
"""
"""A record lock, as Java's `FileChannel.tryLock` takes it, which `flock` does not see."""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
def test_a_lock_needs_no_room_for_its_note_but_a_working_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    disk, path = SystemDisk(), f"{tmp_path}/.lock"

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        if number == errno.EIO:
            with pytest.raises(OSError, match="Input/output error"):
                disk.lock(path, "the test")
        else:
            held = disk.lock(path, "the test")
            with pytest.raises(BlockingIOError, match="another process"):
                disk.lock(path, "another")
            held.release()
    disk.lock(path, "the test").release()
    assert Path(path).read_text() == f"process {os.getpid()} (the test)"


def test_a_directory_locked_by_kafka_is_refused(tmp_path: Path) -> None:
    disk, path = SystemDisk(), f"{tmp_path}/.lock"
    (tmp_path / ".lock").write_text("process 1 (long gone)")
    java = [sys.executable, "-c", JAVAS_LOCK, path]
    with subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match=rf"^process {process.pid}$"):
            disk.lock(path, "the test")
        assert disk.lock_holder(path) == f"process {process.pid}"
        process.communicate("")
    lock = disk.lock(path, "the test")
    refused = subprocess.run(java, capture_output=True, text=True, check=False, input="")
    assert (refused.returncode, "BlockingIOError" in refused.stderr) == (1, True)
    assert disk.lock_holder(path) == f"process {os.getpid()} (the test)"
    lock.release()
    subprocess.run(java, check=True, input="", text=True)


def test_the_holder_of_a_lock_can_be_read_without_locking(tmp_path: Path) -> None:
    disk, path = SystemDisk(), f"{tmp_path}/.lock"
    assert disk.lock_holder(path) is None
    assert not disk.exists(path)
    lock = disk.lock(path, "the test")
    assert SystemDisk().lock_holder(path) == f"process {os.getpid()} (the test)"
    lock.release()
    assert disk.exists(path)
    assert disk.lock_holder(path) is None


def test_a_file_that_is_only_read_needs_no_permission_to_write(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    file = SystemDisk().open(str(path), read_only=True)
    assert file.read(3, 10) == b"tent"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append([b"more"])
    file.close()


def test_a_file_without_create_must_be_there(tmp_path: Path) -> None:
    disk = SystemDisk()
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/none")
    assert not disk.exists(f"{tmp_path}/none")
    disk.make_directories(f"{tmp_path}/a/b")
    assert disk.is_directory(f"{tmp_path}/a")
    disk.remove_directory(f"{tmp_path}/a/b")
    assert disk.list(f"{tmp_path}/a") == []


def test_the_background_thread_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    async def main() -> list[str]:
        disk = SystemDisk()
        loop = asyncio.get_running_loop()
        done: list[str] = []
        started = asyncio.Event()
        release = threading.Event()

        def slow() -> None:
            loop.call_soon_threadsafe(started.set)
            assert release.wait(60)
            done.append("background")

        background = disk.submit(slow, background=True)
        await started.wait()
        await disk.submit(lambda: done.append("writer"))
        release.set()
        await background
        return done

    assert asyncio.run(main()) == ["writer", "background"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux only")
def test_the_writer_gives_way_to_the_event_loop() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def main() -> tuple[int, int, int]:
        disk = SystemDisk()
        return niceness(), await disk.submit(niceness), await disk.submit(niceness, background=True)

    loop, writer, background = asyncio.run(main())
    assert loop < 19
    assert writer > loop == background


def test_a_directory_s_room_and_path_are_the_system_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total, usable = SystemDisk().space(str(tmp_path))
    assert 0 <= usable <= total
    monkeypatch.chdir(tmp_path)
    assert SystemDisk().absolute("data/log") == f"{tmp_path}/data/log"


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_another_thread_the_caller_runs_the_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SystemDisk()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    me = threading.current_thread()
    assert (
        list(disk.run_in_threads([[threading.current_thread] * 3, [threading.current_thread]], threads=2)) == [me] * 4
    )
    (tmp_path / "f").write_bytes(b"data")
    disk.sync_all([f"{tmp_path}/f", f"{tmp_path}/gone", str(tmp_path)])


def test_lanes_yield_results_and_raise_an_error() -> None:
    disk = SystemDisk()
    assert sorted(disk.run_in_threads([[lambda n=n: n for n in range(50)], []], threads=4)) == list(range(50))
    done: list[int] = []

    def fail() -> None:
        raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"):
        list(disk.run_in_threads([[fail, *(partial(done.append, n) for n in range(50_000))]], threads=1))
    assert len(done) < 50_000, "what has not begun does not begin"


def test_work_for_which_no_thread_starts_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when a thread starts for what is submitted later: it was taken back meanwhile."""
    done: list[int] = []

    async def scene() -> None:
        disk = SystemDisk()
        for background in (False, True):
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                with pytest.raises(OSError, match="can't start new thread") as caught:
                    await disk.submit(lambda: done.append(1), background=background)
                assert caught.value.errno == errno.EAGAIN
            await disk.submit(lambda: done.append(2), background=background)

    asyncio.run(scene())
    assert done == [2, 2]


def test_a_failed_sync_is_reported_before_a_file_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of it once."""
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"data")
    real = os.open

    def open_some(path: str, flags: int, mode: int = 0o777) -> int:
        if path.endswith("a"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, flags, mode)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = SystemDisk()
    monkeypatch.setattr(os, "open", open_some)
    with pytest.raises(OSError, match="Too many") as caught:
        disk.sync_all([str(path) for path in paths])
    assert caught.value.errno == errno.EMFILE
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output") as caught:
        disk.sync_all([str(path) for path in paths])
    assert caught.value.errno == errno.EIO
