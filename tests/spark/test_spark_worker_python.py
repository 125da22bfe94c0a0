"""Which Python the workers of a local Spark run, and where it imports PySpark from."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from odradek.spark import worker_daemon
from odradek.spark.local import worker_python as worker_python_module
from odradek.spark.local.worker_python import choose_python, restore_worker_python, worker_python

INSTALLED = Path(pyspark.__file__).resolve().parent
SHOW = "import json, sys; print(json.dumps([sys.executable, sys.argv[1:], sys.path]))"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, whose path has a space."""
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


@pytest.mark.usefixtures("cache")
def test_the_archives_of_spark_are_left_out_of_the_path_and_nothing_else(tmp_path: Path) -> None:
    kept = [f"{tmp_path}/my packages/*", f"{tmp_path}/spark/python/lib/pyspark.zip", f"{INSTALLED}/jars/own.jar"]
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


def test_a_damaged_script_is_written_again(cache: Path) -> None:
    script = Path(worker_python())
    whole = script.read_bytes()
    script.write_bytes(b"")
    assert worker_python() == str(script)
    assert script.read_bytes() == whole
    assert script.is_relative_to(cache)


def test_a_script_of_another_user_is_not_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = worker_python()
    monkeypatch.setattr(os, "getuid", lambda: os.stat(script).st_uid + 1)
    monkeypatch.setattr(Path, "stat", lambda path, **_: SimpleNamespace(st_uid=7, st_mode=os.stat(path).st_mode))
    assert worker_python() == sys.executable


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Python of the workers, chosen by nobody."""
    monkeypatch.setattr(worker_python_module, "_chosen", set())
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    yield
    os.environ.pop("PYSPARK_PYTHON", None)


@pytest.mark.usefixtures("unset")
def test_a_later_session_replaces_the_choice_of_an_earlier_one() -> None:
    assert choose_python("PYSPARK_PYTHON", "/cache/python")
    assert choose_python("PYSPARK_PYTHON", sys.executable)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert not choose_python("PYSPARK_PYTHON", None)
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.usefixtures("unset")
def test_the_choice_of_the_user_stays() -> None:
    os.environ["PYSPARK_PYTHON"] = "/opt/python"
    assert not choose_python("PYSPARK_PYTHON", "/cache/python")
    assert not choose_python("PYSPARK_PYTHON", None)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.usefixtures("unset")
def test_a_script_that_a_cleaner_has_removed_is_made_again(cache: Path) -> None:
    script = worker_python()
    restore_worker_python()
    choose_python("PYSPARK_PYTHON", script)
    shutil.rmtree(cache)
    restore_worker_python()
    assert Path(script).exists()


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


def test_each_task_requests_quick_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
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
    def started(_: int) -> tuple[str, list[str]]:
        import sys

        return sys.modules["__main__"].__spec__.name, sys.argv[1:]  # type: ignore[union-attr]

    (found,) = spark.sparkContext.parallelize([0], 1).map(started).collect()
    assert found == ("odradek.spark.worker_daemon", ["pyspark.worker"])


def test_the_workers_of_a_local_session_import_the_installed_package(spark: Any) -> None:
    def imported(_: int) -> tuple[str, str]:
        import sys

        import pyspark

        return sys.executable, pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(imported).collect() == [(sys.executable, pyspark.__file__)]


def test_a_worker_whose_rows_spark_no_longer_reads_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(sock: socket.socket, authenticated: bool) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(worker_daemon, "_work", work)
    left, right = socket.socketpair()
    with left, right:
        assert worker_daemon.worker(left, False) == 1
