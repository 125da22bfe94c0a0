"""Kafka's command-line tools: `java/Tools.java`, one process for all commands of a session."""

import functools
import subprocess
import threading
from pathlib import Path
from typing import Final

from bench.peers.kafka_peer import kafka_home

_SOURCE: Final = Path(__file__).parent / "java" / "Tools.java"
_SEPARATOR: Final = "\x1f"
_LIMIT_S: Final = 120.0


class KafkaTools:
    """The running process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            kafka_home().command(str(_SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, main: str, *arguments: str) -> tuple[int, str]:
        """Return the exit status of a tool's class, and what it printed on both outputs."""
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        commands.write(f"{_SEPARATOR.join((main, *arguments))}\n".encode())
        commands.flush()
        limit = threading.Timer(_LIMIT_S, self._process.kill)
        limit.start()
        try:
            status, size = map(int, answers.readline().split())
            return status, answers.read(size).decode()
        finally:
            limit.cancel()
            limit.join()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


kafka_tools = functools.cache(KafkaTools)
"""The process, which the first call starts; a fixture of the session stops it."""


def tool(main: str, *arguments: str) -> str:
    """Return what a tool prints; it must succeed."""
    status, printed = kafka_tools().run(main, *arguments)
    assert status == 0, printed
    return printed
