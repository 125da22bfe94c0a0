"""The settings of a local Spark, and how it defers Ctrl-C."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.model import ConfigurationError, UnavailableError
from odradek.pipelines.config.examples import EXAMPLES
from odradek.spark.master import check_master_answers, check_memory, local_threads
from odradek.spark.session import _fit_shuffle_partitions, _start_context, deferred_interrupts, run_interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_deferred_until_the_check(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    steps = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts() as check:
        check()
        os.kill(os.getpid(), number)
        steps.append("a call into the JVM ends undisturbed")
        check()
        steps.append("never")
    assert steps == ["a call into the JVM ends undisturbed"]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_wait_on_an_event_loop_at_once(number: signal.Signals) -> None:
    steps = []

    async def wait() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    async def answer() -> str:
        await asyncio.sleep(0)
        return "an answer"

    with deferred_interrupts() as check:
        with pytest.raises(KeyboardInterrupt):
            run_interruptible(wait)
        check()
        # The queries are stopped after an interrupt, which needs the loop again.
        assert run_interruptible(answer) == "an answer"
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            run_interruptible(answer)
    assert steps == ["cancelled"]


def test_interrupts_are_not_deferred_in_other_threads() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with deferred_interrupts() as check:
            check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_shuffle_partitions_of_a_cluster_are_the_cores_of_its_executors() -> None:
    settings: dict[str, str] = {}
    spark = SimpleNamespace(
        statusTracker=lambda: SimpleNamespace(getExecutorInfos=lambda: ["the driver", "an executor"]),
        conf=lambda: SimpleNamespace(set=settings.__setitem__),
    )
    context = SimpleNamespace(defaultParallelism=12, _jsc=SimpleNamespace(sc=lambda: spark))
    _fit_shuffle_partitions(context, "spark://a:7077", lambda: None)
    assert settings == {"spark.sql.shuffle.partitions": "12"}


DISTURBED_STARTS = """
import os, signal, threading, time, types
import pyspark.java_gateway
from pyspark import SparkContext
from odradek.spark.session import local_session, quiet_calls, stop_session

quiet_calls()

def terminate(seconds=0):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(seconds)

def session():
    return local_session(threads=1, short_lived=True, keep_classes=False)

def report(what):
    try:
        session()
    except (Exception, KeyboardInterrupt) as error:
        print(what, type(error).__name__, error, flush=True)

pyspark.java_gateway.time = types.SimpleNamespace(sleep=terminate)
report("launching")
pyspark.java_gateway.time = time
init = SparkContext._do_init
SparkContext._do_init = lambda *all: (terminate(), init(*all))
report("connected")
SparkContext._do_init = lambda *all: (SparkContext._gateway.proc.kill(), init(*all))
report("killed")
SparkContext._do_init = init
spark = session()
print(spark.range(3).count())
stop_session(spark)
"""


@pytest.mark.long
@pytest.mark.needs("java")
def test_a_signal_or_the_end_of_the_jvm_during_the_start_leaves_no_jvm_and_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", DISTURBED_STARTS], capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == [
        "launching KeyboardInterrupt ",
        "connected KeyboardInterrupt ",
        "killed UnavailableError Spark did not start on local[1]: the JVM has ended",
        "3",
    ]
    assert "Traceback" not in done.stderr


# ---- The module that PySpark imports ---------------------------------------------------------------------------------

pytest.importorskip("pyspark")


PROGRAM = """
import sys
{before}
import pyspark.sql.datasource
known = set(sys.modules)
import pyspark_odradek
print(hasattr(pyspark_odradek, "DefaultSource"))
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - known}}))
"""


def run(before: str = "") -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, timeout=60, check=True
    )
    found, imported = done.stdout.splitlines()
    return found, set(imported.split())


def test_a_process_that_spark_submit_has_started_uses_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(_accumulatorServer=SimpleNamespace())
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_, **__: SimpleNamespace(proc=None))
    monkeypatch.setattr("pyspark.SparkContext", lambda **_: context)
    assert _start_context(None, None, lambda: None, is_ours=True) is context


def test_importing_pyspark_odradek_registers_the_data_source_and_imports_little_else() -> None:
    found, imported = run()
    assert found == "True"
    assert not imported & {"pyarrow", "pandas", "uvloop", "numpy"}


@pytest.mark.parametrize("missing", ["odradek.spark.source", "odradek.model", "re2"])
def test_a_broken_installation_hides_the_format_and_does_not_fail_pyspark(missing: str) -> None:
    found, _ = run(f"sys.modules[{missing!r}] = None")
    assert found == "False"


def test_the_data_source_has_the_name_of_the_format() -> None:
    from pyspark_odradek import DefaultSource

    assert DefaultSource.name() == "odradek"


# ---- Masters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "threads"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[*]", 6),
        ("local[3, 2]", 3),
        ("local-cluster[1,1,1024]", None),
        ("spark://a:7077,b:7077", None),
        ("spark://[::1]:7077", None),
        ("yarn", None),
        ("k8s://https://a:6443", None),
    ],
)
def test_a_local_master_has_its_own_number_of_threads(master: str, threads: int | None) -> None:
    assert local_threads(master, 6) == threads


@pytest.mark.parametrize("master", ["locale", "local[0]", "local[]", "spark://a", "spark:/a:7077", "a:7077", ""])
def test_a_wrong_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no Spark master: local\[N\], spark://HOST:PORT"):
        local_threads(master, 6)


@pytest.mark.parametrize("memory", ["", "2", "2gb", "2x", "1.5g", "-2g", "511m", "0t"])
def test_a_wrong_memory_is_refused(memory: str) -> None:
    with pytest.raises(ConfigurationError, match="is no memory for Spark's driver: give a size such as 2g"):
        check_memory(memory)


@pytest.mark.parametrize("memory", ["512m", "1g", "2G", "1t"])
def test_a_size_of_the_jvm_is_accepted(memory: str) -> None:
    check_memory(memory)


def test_a_master_answers_if_one_of_its_hosts_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check_master_answers(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        check_master_answers("yarn")
    with pytest.raises(UnavailableError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
        check_master_answers(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        (("--master", "locale[2]"), "'locale[2]' is no Spark master: local[N], ", 2),
        (("--conf", "spark.master=locale[2]"), "'locale[2]' is no Spark master: local[N], ", 2),
        (("--memory", "1gb"), "'1gb' is no memory for Spark's driver: ", 2),
        (("--master", "spark://127.0.0.1:1"), "no Spark master answers at spark://127.0.0.1:1\n", 1),
    ],
)
def test_a_command_reports_it_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str], sentence: str, code: int
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "check", *options, str(file)])
    assert (done.exit_code, done.output.startswith(f"odradek: {sentence}"), done.output.count("\n")) == (code, True, 1)


def test_memory_is_not_for_a_remote_spark(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "check", "--remote", "sc://a:1", "--memory", "2g", str(file)])
    assert (done.exit_code, "--remote is a running Spark" in done.output) == (2, True)
