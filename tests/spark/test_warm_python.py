"""Workers of PySpark are forks of a process that has imported everything, or start as Python does."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.local import launcher, warm_python
from odradek.spark.local.launcher import own_folder
from odradek.spark.local.warm_python import Request, WarmPython, start_variables

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has a warm process")

WORKER = """
import json, os, random, sys
import numpy
print(json.dumps({
    "arguments": sys.argv[1:], "directory": os.getcwd(), "path": sys.path[0], "own": os.environ.get("OWN"),
    "executable": sys.executable, "name": __name__, "parent": os.getppid(), "random": random.random(),
    "numpy": numpy.random.random(), "is_warm": "pyspark.worker" in sys.modules,
    "commits": "pyspark.sql.worker.python_streaming_sink_runner" in sys.modules, "read": sys.stdin.read(),
}))
sys.exit(int(os.environ.get("STATUS", "0")))
"""
JVM = """
import os, subprocess, sys
done = subprocess.run([sys.executable, "-I", "-S", *sys.argv[1:]], stdin=subprocess.DEVNULL)
sys.stdout.write(f"{os.getpid()} {done.returncode}\\n")
sys.stdout.flush()
sys.stdin.read()
"""
"""A parent of a launcher; the warm process ends with it."""


class Jvm:
    """Runs launchers as Spark's JVM does, each with the same parent: this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "TMPDIR": str(folder), "PYTHONHASHSEED": "0"}
        (folder / "shown.py").write_text(WORKER)

    def start(self, *arguments: str, module: str = "shown", **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", launcher.__file__, "-m", module, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, sent: str = "", **environment: str) -> tuple[dict[str, object], str, int]:
        """Return what the worker shows, the launcher's stderr, and its status."""
        worker = self.start(*arguments, **environment)
        shown, told = worker.communicate(sent, timeout=120)
        return json.loads(shown), told, worker.returncode

    @property
    def warm(self) -> Path:
        name = os.path.basename(own_folder(os.getpid()))
        return self.folder / name


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    jvm = Jvm(tmp_path_factory.mktemp("warm"))
    first, told, status = jvm.run("one")
    assert (first["is_warm"], told, status) == (True, "", 0)
    yield jvm
    os.kill(int(str(first["parent"])), signal.SIGKILL)


def test_a_fork_is_what_python_would_be(jvm: Jvm) -> None:
    shown, told, status = jvm.run("two words", "*", sent="input", OWN="value", STATUS="3")
    assert (told, status) == ("", 3)
    assert shown["arguments"] == ["two words", "*"]
    assert (shown["own"], shown["read"], shown["name"]) == ("value", "input", "__main__")
    assert shown["directory"] == shown["path"] == str(jvm.folder)
    assert shown["executable"] == sys.executable
    assert not shown["commits"], "the source tells by this module that it is in a commit"


def test_forks_have_one_parent_and_random_numbers_of_their_own(jvm: Jvm) -> None:
    both = [jvm.run()[0] for _ in range(2)]
    assert both[0]["parent"] == both[1]["parent"]
    assert both[0]["random"] != both[1]["random"]
    assert both[0]["numpy"] != both[1]["numpy"]


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONHASHSEED", "OMP_NUM_THREADS", "LC_ALL"])
def test_other_variables_start_an_ordinary_python_with_a_line(jvm: Jvm, variable: str) -> None:
    shown, told, _ = jvm.run(**{variable: "7"})
    assert not shown["is_warm"]
    assert told == f"odradek: this worker of Spark imports by itself: other values of {variable}\n"


def test_an_option_of_python_starts_an_ordinary_one(jvm: Jvm) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            launcher.__file__,
            "-c",
            "import os, sys; print(os.getppid(), sys.flags.isolated)",
        ],
        env=jvm.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{os.getpid()} 0\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on(jvm: Jvm, number: signal.Signals) -> None:
    (jvm.folder / "waits.py").write_text("import os, sys\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n")
    with jvm.start(module="waits") as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.send_signal(number)
        assert worker.wait(timeout=60) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_killed_launcher_takes_its_worker_with_it(jvm: Jvm) -> None:
    (jvm.folder / "waits.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with jvm.start(module="waits") as worker:
        assert worker.stdout is not None
        ended = os.pidfd_open(int(worker.stdout.readline()))
        worker.kill()
        await_end(ended)


def test_a_folder_that_others_may_enter_is_not_used(jvm: Jvm) -> None:
    jvm.warm.chmod(0o711)
    try:
        shown, told, _ = jvm.run()
    finally:
        jvm.warm.chmod(0o700)
    assert not shown["is_warm"]
    assert told == f"odradek: this worker of Spark imports by itself: {jvm.warm} is not this user's alone\n"


def test_the_process_ends_with_the_jvm_and_its_folder_goes(tmp_path: Path) -> None:
    """The path of a Unix socket has at most 107 bytes, that of a folder more."""
    (long := tmp_path / ("x" * 108)).mkdir()
    own = Jvm(long)
    with subprocess.Popen(
        [sys.executable, "-c", JVM, launcher.__file__, "-m", "shown"],
        cwd=own.folder,
        env=own.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        warm = int(str(json.loads(parent.stdout.readline())["parent"]))
        pid, status = parent.stdout.readline().split()
        assert status == "0"
        (folder,) = own.folder.glob(f"odradek-python-*-{pid}-*")
        ended = os.pidfd_open(warm)
        parent.kill()
    await_end(ended)
    assert not folder.exists()


def await_end(process: int) -> None:
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    assert waiting.poll(60_000), "the process goes on"
    os.close(process)


def refusal(server: WarmPython, **environment: str) -> str | None:
    return server._refusal(Request("/", dict(os.environ) | environment, [], []))


@pytest.fixture
def server() -> Iterator[WarmPython]:
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        yield WarmPython(listening, os.getpid())


def test_a_process_with_threads_is_not_forked(server: WarmPython) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert refusal(server) == "the process to fork from has more than one thread"
    finally:
        end.set()
        thread.join()


def test_a_changed_file_is_not_forked(server: WarmPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: ["1"])
    file = tmp_path / "module.py"
    file.write_text("")
    server._files[str(file)] = warm_python.modified(str(file))
    assert refusal(server) is None
    os.utime(file, ns=(0, 1))
    assert refusal(server) == f"{file} has changed"
    file.unlink()
    assert refusal(server) == f"{file} has changed"


def test_variables_that_spark_sets_for_each_worker_do_not_count() -> None:
    spark = {"PYTHON_WORKER_FACTORY_PORT": "1", "PYTHONPATH": "", "SPARK_HOME": "/", "OMP_NUM_THREADS": "1"}
    assert start_variables(spark, "/") == start_variables({}, "/")


def test_a_path_that_names_a_folder_twice_is_the_same_path() -> None:
    alone = start_variables({"PYTHONPATH": ".:/packages"}, "/here")
    assert start_variables({"PYTHONPATH": ".:/packages::.:/packages"}, "/here") == alone
    assert start_variables({"PYTHONPATH": ".:/packages"}, "/there") != alone
    assert start_variables({"PYTHONPATH": "/packages:."}, "/here") != alone


def test_every_imported_module_is_there() -> None:
    """A new PySpark may rename one, which would cost its workers a second each."""
    import importlib.util

    assert [name for name in warm_python._IMPORTED if importlib.util.find_spec(name) is None] == []
