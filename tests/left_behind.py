"""A test run ends its processes, closes clients of librdkafka, and compiles each test file once.

A run has a value of `ODRADEK_TEST_RUN` that all its processes inherit: the workers of xdist, servers, brokers, JVMs.
A process beside the run, this file as a program, waits for the end of a pipe whose other end the run holds, and then
kills every process that has the value. A pipe ends with a run that is interrupted or killed, too (Linux only).
"""

import importlib
import logging
import os
import signal
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from _pytest.assertion import rewrite

VARIABLE: Final = "ODRADEK_TEST_RUN"
_log: Final = logging.getLogger("librdkafka")


def end_processes_with_this_one() -> None:
    """Have this process's descendants killed when it ends in whatever way."""
    if not Path("/proc/self/environ").exists():
        return
    token = f"{os.getpid()}-{os.urandom(8).hex()}"
    reading, _ = os.pipe()  # the other end stays open until this process has ended, and no child inherits it
    files = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    # A session of its own: Ctrl-C interrupts all other processes of a terminal.
    command = [sys.executable, "-I", __file__, token]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setsid=True)
    os.close(reading)
    os.environ[VARIABLE] = token


def kill_processes_of(token: str) -> None:
    """Kill every process with this value of the variable, and those that they have started meanwhile."""
    wanted = f"{VARIABLE}={token}".encode()
    found = True
    while found:
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True


def log_of_librdkafka() -> list["weakref.ref[Any]"]:
    """Send librdkafka's log lines to `logging`; return a list to which each new producer and admin client is appended.

    librdkafka prints them from threads of its own: also while other tests run, and after a broker has stopped.
    """
    made: list[weakref.ref[Any]] = []
    try:
        confluent_kafka: Any = importlib.import_module("confluent_kafka")
        admin = importlib.import_module("confluent_kafka.admin").AdminClient
    except ImportError:
        return made
    confluent_kafka.Consumer = type("Consumer", (confluent_kafka.Consumer,), _logging(confluent_kafka.Consumer, []))
    confluent_kafka.Producer = type("Producer", (confluent_kafka.Producer,), _logging(confluent_kafka.Producer, made))
    admin.__init__ = _logging(admin, made)["__init__"]
    return made


def _logging(base: Any, made: list["weakref.ref[Any]"]) -> dict[str, Any]:
    original = base.__init__

    def start(self: Any, *args: Any, **settings: Any) -> None:
        original(self, *args, **{"logger": _log, **settings})
        made.append(weakref.ref(self))

    return {"__init__": start}


def close_all(clients: Iterable["weakref.ref[Any]"]) -> None:
    """Close producers and admin clients of librdkafka that still exist, without a wait for their messages."""
    for client in filter(None, (each() for each in clients)):
        if hasattr(client, "close"):
            from confluent_kafka import KafkaException

            client.purge()
            with suppress(KafkaException):  # a fenced producer cannot end its transaction
                client.close()
        else:
            client.__exit__(None, None, None)


def compile_tests(files: Iterable[Path], config: Any) -> None:
    """Write pytest's bytecode of those test files that have none."""
    for path in files:
        written = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if not written.exists() and rewrite.try_makedirs(written.parent):
            source_hash, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, written)


if __name__ == "__main__":
    sys.stdin.read()
    kill_processes_of(sys.argv[1])
