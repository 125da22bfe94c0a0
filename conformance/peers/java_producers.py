"""Kafka's own transactional producers: `java/Transactions.java`, one process for all of a broker's."""

import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.kafka_peer import kafka_home
from conformance.interop.transactional_clients import PARTITIONS

_LIMIT_S: Final = 120.0
_SOURCE: Final = Path(__file__).parent / "java" / "Transactions.java"


class JavaError(Exception):
    """The exception that a producer has thrown."""


class JavaProcess:
    """The running process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.names = (f"producer-{number}" for number in itertools.count())
        self._process = process

    def ask(self, *words: str) -> None:
        """Have a command done, or raise `JavaError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(_LIMIT_S, self._process.kill)
        limit.start()
        try:
            print(*words, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline().strip()
        finally:
            limit.cancel()
            limit.join()
        if answer != "done":
            raise JavaError(answer)

    def make(self, servers: str, transactional_id: str) -> "JavaProducer":
        """Return a producer that is initialised."""
        del servers  # those of the process
        return JavaProducer(self, transactional_id)


class JavaProducer:
    fenced: tuple[type[Exception], ...] = (JavaError,)

    def __init__(self, process: JavaProcess, transactional_id: str) -> None:
        self._process = process
        self._name = next(process.names)
        self._ask("init", transactional_id)

    def _ask(self, command: str, *words: str) -> None:
        self._process.ask(command, self._name, *words)

    def begin(self) -> None:
        self._ask("begin")

    def write(self, topic: str, *values: str) -> None:
        for number, value in enumerate(values):
            self._ask("write", topic, str(number % PARTITIONS), value)
        self._ask("flush")

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        self._ask("offset", topic, group, str(offset))

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")


@contextmanager
def java_producers(servers: str, log: Path) -> Iterator[JavaProcess]:
    """Run the process, whose producers have these bootstrap servers; its errors go to `log`."""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            kafka_home().command(str(_SOURCE), f"bootstrap.servers={servers}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield JavaProcess(process)
        finally:
            process.kill()
