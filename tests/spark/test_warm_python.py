"""Workers of PySpark are forks of a process that has imported everything, or start as Python does."""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.local import launcher, warm_python
from odradek.spark.local.launcher import warm_folder
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


FORKS = """
import os, random
import numpy
for _ in range(2):
    if not (child := os.fork()):
        os.write(1, f"{random.random()} {numpy.random.random()} ".encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


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

    def show(self, text: str) -> str:
        """Return what a fork shows that runs `text`."""
        (self.folder / "script.py").write_text(text)
        with self.start(module="script") as worker:
            return worker.communicate(timeout=120)[0]

    def run(self, *arguments: str, sent: str = "", **environment: str) -> tuple[dict[str, object], str, int]:
        """Return what the worker shows, the launcher's stderr, and its status."""
        worker = self.start(*arguments, **environment)
        shown, told = worker.communicate(sent, timeout=120)
        return json.loads(shown), told, worker.returncode

    @property
    def warm(self) -> Path:
        name = os.path.basename(warm_folder(os.getpid()))
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


def test_forks_of_a_fork_have_random_numbers_of_their_own(jvm: Jvm) -> None:
    """PySpark's daemon is a fork, and its workers are forks of that."""
    assert len(set(jvm.show(FORKS).split())) == 4


def test_a_fork_has_no_descriptors_of_others(jvm: Jvm) -> None:
    (jvm.folder / "waits.py").write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    with jvm.start(module="waits") as other:
        assert other.stdout is not None
        other.stdout.readline()
        # The list has the descriptor that it is read with.
        assert jvm.show("import os\nprint(os.listdir('/proc/self/fd'))") == "['0', '1', '2', '3']\n"
        other.communicate(timeout=60)


@pytest.mark.parametrize("safe", ["", "1"])
def test_the_path_of_modules_is_that_of_python(tmp_path: Path, safe: str) -> None:
    jvm = Jvm(tmp_path)
    jvm.environment |= {"PYTHONSAFEPATH": safe, "PYTHONPATH": f"{tmp_path}/other:{tmp_path}"}
    (tmp_path / "paths.py").write_text("import os, sys\nprint(os.getppid(), *sys.path)\n")
    with jvm.start(module="paths") as worker:
        warm, *paths = worker.communicate(timeout=120)[0].split()
    own = subprocess.check_output([sys.executable, "-m", "paths"], cwd=tmp_path, env=jvm.environment, text=True)
    os.kill(int(warm), signal.SIGKILL)
    assert paths == own.split()[1:]


@pytest.mark.parametrize("mode", [0o700, 0o2700])
def test_a_process_that_starts_the_warm_one_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A folder inherits the setgid bit of the one that it is in."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    tmp_path.chmod(mode)
    launcher.start_warm(str(tmp_path / "warm"), os.getpid(), {})
    open_files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert not [each for each in open_files if each.startswith(str(tmp_path))]


def test_a_kernel_without_descriptors_of_processes_gets_no_warm_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", fail)
    with pytest.raises(OSError, match="not implemented"):
        launcher.start_warm(str(tmp_path / "warm"), os.getpid(), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONHASHSEED", "OMP_NUM_THREADS", "LC_ALL"])
def test_other_variables_start_an_ordinary_python_with_a_line(jvm: Jvm, variable: str) -> None:
    shown, told, _ = jvm.run(**{variable: "7"})
    assert not shown["is_warm"]
    reason = f"it has other values of {variable} than the first worker"
    assert told == f"odradek: this worker of Spark imports by itself: {reason}\n"


def test_more_threads_for_numpy_than_the_process_has_start_an_ordinary_python(jvm: Jvm) -> None:
    shown, told, _ = jvm.run(OPENBLAS_NUM_THREADS="2")
    assert not shown["is_warm"]
    assert told.endswith("imports by itself: it has other values of OMP_NUM_THREADS than the first worker\n")


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
        ended = os.pidfd_open(int(worker.stdout.readline()))
        worker.send_signal(number)
        assert worker.wait(timeout=60) == 128 + number
    await_end(ended)


def test_a_signal_before_the_fork_ends_the_launcher_as_one_after_it_does(tmp_path: Path) -> None:
    (long := tmp_path / ("x" * 108)).mkdir()
    jvm = Jvm(long)
    jvm.warm.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        with launcher._socket_path(str(jvm.warm)) as path:
            listening.bind(path)
        listening.listen()
        listening.settimeout(60)
        with jvm.start() as worker:
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(1)
                worker.terminate()
                assert worker.wait(timeout=60) == 128 + signal.SIGTERM


def test_an_ignored_signal_stays_ignored(jvm: Jvm) -> None:
    """PySpark's JVM ignores Ctrl-C, and so do its children."""
    (jvm.folder / "waits.py").write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with jvm.start(module="waits") as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            status = Path(f"/proc/{worker.pid}/status").read_text()
            worker.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    (ignored,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    assert ignored & 1 << signal.SIGINT - 1


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
    reason = f"{jvm.warm} is not this user's alone: remove it"
    assert told == f"odradek: this worker of Spark imports by itself: {reason}\n"


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


def test_only_sessions_for_tables_import_what_tables_need() -> None:
    modules = (
        *warm_python._IMPORTED,
        "pyspark_odradek_iceberg",
        "odradek.cli.pipeline.run",
        "odradek.pipelines.queries",
    )
    found = "[name for name in sys.modules if name.partition('.')[0] in ('pyiceberg', 'sqlalchemy', 'pydantic')]"
    program = f"import importlib, sys; [importlib.import_module(name) for name in {modules}]; print({found})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_a_session_after_one_for_tables_is_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from odradek.spark import session

    class StartedError(Exception):
        pass

    def start(*_: object, **__: object) -> None:
        raise StartedError(os.environ[launcher.FOR_TABLES] or "plain")

    monkeypatch.setattr(session, "_start_context", start)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for for_tables, found in ((False, "plain"), (True, "1"), (False, "plain")):
        with pytest.raises(StartedError, match=found):
            session.local_session(for_tables=for_tables)
