"""Which Python the workers of a local Spark run, and where it imports PySpark from."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from odradek.spark import worker_daemon
from odradek.spark.worker_python import worker_python

INSTALLED = Path(pyspark.__file__).parent
SHOW = "import json, sys; print(json.dumps([sys.executable, sys.argv[1:], sys.path]))"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, whose path has a space."""
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


@pytest.mark.usefixtures("cache")
def test_the_archives_of_spark_are_left_out_of_the_path_and_nothing_else(tmp_path: Path) -> None:
    kept = [f"{tmp_path}/my packages/*", f"{tmp_path}/spark/python/lib/pyspark.zip", f"{tmp_path}/jars/own.jar"]
    archives = [f"{INSTALLED}/python/lib/pyspark.zip", f"{INSTALLED}/jars/spark-core_2.13-4.3.0.jar"]
    path = ":".join([archives[0], *kept[:2], archives[1], kept[2]])
    command = [worker_python(), "-c", SHOW, "two words", "*"]
    shown = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout
    executable, arguments, found = json.loads(shown)
    assert executable == sys.executable
    assert arguments == ["two words", "*"]
    assert [each for each in found if each in {*kept, *archives}] == kept


@pytest.mark.usefixtures("cache")
def test_a_path_of_archives_alone_ends_empty() -> None:
    path = f"{INSTALLED}/python/lib/py4j-0.10-src.zip:{INSTALLED}/jars/spark-core_2.13-4.3.0.jar"
    command = [worker_python(), "-c", "import os; print(repr(os.environ['PYTHONPATH']))"]
    shown = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout
    assert shown == "''\n"


def test_a_cache_whose_files_cannot_be_run_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that is mounted with `noexec`."""
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path).is_relative_to(cache) and mode == os.X_OK))
    assert worker_python() == sys.executable


def test_without_a_cache_it_is_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "file" / "cache"))
    assert worker_python() == sys.executable


@pytest.mark.parametrize("program", ['/opt/"odd"/python', "/opt/$HOME/python"])
def test_a_path_that_a_shell_would_change_is_not_put_into_a_script(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert worker_python() == program


def test_each_task_asks_for_quick_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's bytes come in several packets; Linux forgets the option, so the second task asks again."""
    asked = []
    monkeypatch.setattr(worker_daemon, "_work", lambda sock, authenticated: asked.append((sock, authenticated)) or 7)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        for option in (0, 0):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, option)
            assert worker_daemon.worker(one, True) == 7  # PySpark's own signature
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    left, right = socket.socketpair()
    with left, right:
        assert worker_daemon.worker(left, False) == 7
    assert [authenticated for _, authenticated in asked] == [True, True, False]


def test_the_workers_of_a_local_session_are_of_our_daemon(spark: Any) -> None:
    def parent(_: int) -> str:
        return Path(f"/proc/{os.getppid()}/cmdline").read_text()

    (found,) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert "odradek.spark.worker_daemon\0pyspark.worker" in found


def test_the_workers_of_a_local_session_import_the_installed_package(spark: Any) -> None:
    def imported(_: int) -> tuple[str, str]:
        import sys

        import pyspark

        return sys.executable, pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(imported).collect() == [(sys.executable, pyspark.__file__)]
