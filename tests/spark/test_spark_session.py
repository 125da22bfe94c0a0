"""The settings of a local Spark, and how it defers Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from odradek.spark.session import _fit_shuffle_partitions, deferred_interrupts, run_interruptible


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
