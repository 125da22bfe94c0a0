"""The command `odradek` against the session's broker: as a process with pipes where these matter, else in this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryFile
from typing import Any

import pytest

from odradek.cli import main

COMMAND = [sys.executable, "-c", "from odradek.cli import main; main(prog_name='odradek')"]
DEADLINE_S = 60.0
HERE = {"topics", "groups", "produce", "consume"}
"""Commands that talk to a cluster, run in this process: another one would be the same, and takes half a second."""


class Shell:
    """Runs commands against a broker. Nothing that was started outlives the test."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, stdin: Any = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """A command that runs on; arguments that talk to a cluster get the broker's address."""
        server = ["--bootstrap-server", self.servers] if arguments[0] in HERE and self.servers else []
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "PYTHONWARNINGS": "error"}
        process = subprocess.Popen(
            [*COMMAND, *arguments, *server],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, stdin: bytes | None = None, code: int = 0) -> str:
        """A command's standard output, or with another `code` than 0 its standard error; fails on any other code."""
        if arguments[0] in HERE and self.servers:
            return self.run_here(*arguments, "--bootstrap-server", self.servers, stdin=stdin, code=code)
        process = self.start(*arguments, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=DEADLINE_S)
        assert process.returncode == code, (process.returncode, out, err)
        assert b"Traceback" not in err
        return (out if code == 0 else err).decode()

    def run_here(self, *arguments: str, stdin: bytes | None = None, code: int = 0) -> str:
        """Run a command in this process, with files, which have a descriptor, as its standard ones."""
        with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            given.buffer.write(stdin or b"")
            given.seek(0)
            with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "stdin", given)
                with pytest.raises(SystemExit) as ended:
                    main(list(arguments), prog_name="odradek")
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read())
        assert (ended.value.code or 0) == code, (ended.value.code, *texts)
        return texts[0] if code == 0 else texts[1]

    def end(self, process: "subprocess.Popen[bytes]", sign: signal.Signals) -> tuple[int, bytes, bytes]:
        """Send a signal; the exit status and what was printed."""
        process.send_signal(sign)
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            # Reaps it, and closes its pipes.
            with process:
                pass


@pytest.fixture
def shell(kafka: Any) -> Iterator[Shell]:
    """Against the session's broker."""
    shell = Shell(kafka.bootstrap_servers)
    yield shell
    shell.close()


@pytest.fixture
def lonely_shell() -> Iterator[Shell]:
    """Without a broker."""
    shell = Shell("")
    yield shell
    shell.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest, shell: Shell) -> Callable[..., str]:
    """Creates a topic of the test's own, and gives its name."""
    count = 0

    def create(partitions: int = 1) -> str:
        nonlocal count
        count += 1
        name = f"{request.node.name[:100]}-{count}".replace("[", "-").replace("]", "")
        shell.run("topics", "create", name, "--partitions", str(partitions))
        return name

    return create
