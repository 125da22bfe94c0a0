"""`odradek sim --mistakes`: plays seeds on copies of the source tree that have a small mistake each.

tests/simulation/mistakes/NAME.patch

    A retry keeps the epoch of its first attempt.           what the mistake is
    workload: records                                       the workload that should meet it; several with commas
    test: tests/broker/log/test_log.py::test_a_retry        optional: the test that finds it where no seed does
    --- a/src/odradek/broker/…                              the change, for `git apply`
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Final

import click
import msgspec
from msgspec import Struct

from odradek.cli.common import print_json
from odradek.model import ConfigurationError, UnavailableError
from odradek.simulation.seed_run import SeedResult

SOURCE_TREE: Final = Path(__file__).resolve().parents[4]
MISTAKES: Final = SOURCE_TREE / "tests" / "simulation" / "mistakes"
SEEDS: Final = (0, 59)
"""The seeds that are played until one has a finding."""
_MOST_CPU_S: Final = 900
"""Limit of all seeds of a mistake, some of which never end."""


class Mistake(Struct, frozen=True, kw_only=True):
    """A patch of the source tree, and what its header says."""

    path: Path
    sentence: str
    workload: str
    test: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """The first finding of a mistake's seeds, and its check; an empty `finding` means that no seed found it."""

    mistake: str
    seeds: int
    cpu_s: float
    check: str = ""
    finding: str = ""
    test: str = ""

    def __str__(self) -> str:
        played = f"{self.seeds} seed{'s' * (self.seeds != 1)}, {self.cpu_s:.0f} s of CPU"
        if self.finding:
            return f"{self.mistake}: found by {self.check} after {played}: {self.finding}"
        return f"{self.mistake}: not found by {played}{'; found by ' * bool(self.test)}{self.test}"


def read_mistakes(folder: Path) -> list[Mistake]:
    """Return the mistakes of a folder, by name."""
    return [_read(path) for path in sorted(folder.glob("*.patch"))]


def _read(path: Path) -> Mistake:
    header = path.read_text(encoding="utf-8").partition("\n--- ")[0].splitlines()
    values = {key: value.strip() for key, _, value in (line.partition(": ") for line in header[1:])}
    if not header or "workload" not in values:
        raise ConfigurationError(f"{path} has no header: a sentence, and a line `workload: NAME`")
    return Mistake(path=path, sentence=header[0], workload=values["workload"], test=values.get("test", ""))


def play_mistakes(folder: Path, seeds: Sequence[int], *, workers: int, as_json: bool) -> bool:
    """Play the mistakes of a folder, and print each outcome. Return whether all were found."""
    if not MISTAKES.is_dir():
        raise UnavailableError(
            "--mistakes changes copies of the source tree, which an installed package lacks: run it in a source tree"
        )
    if not (mistakes := read_mistakes(folder)):
        raise ConfigurationError(f"{folder} has no patches")
    found, cpu_s = 0, 0.0
    with ThreadPoolExecutor(workers) as pool:
        for outcome in pool.map(lambda mistake: _play(mistake, seeds), mistakes):
            found, cpu_s = found + bool(outcome.finding or outcome.test), cpu_s + outcome.cpu_s
            print_json(msgspec.to_builtins(outcome)) if as_json else click.echo(outcome)
    if not as_json:
        click.echo(f"{found} of {len(mistakes)} mistakes are found, {cpu_s:,.0f} s of CPU")
    return found == len(mistakes)


@contextmanager
def changed_copy(mistake: Mistake) -> Iterator[Path]:
    """Yield a temporary folder with the sources and the mistake in them. Raise `ConfigurationError` if it misfits."""
    with TemporaryDirectory(prefix="odradek-mistake-") as name:
        folder = Path(name)
        copytree(SOURCE_TREE / "src", folder / "src")
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        command = ["git", "apply", str(mistake.path.resolve())]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigurationError(f"{mistake.path} does not fit the source: {done.stderr.strip()}")
        yield folder


def _play(mistake: Mistake, seeds: Sequence[int]) -> Outcome:
    """Play seeds in a process until one has a finding, and count the CPU time of that process."""
    program = ["-m", "odradek", "sim", "--json", "--seeds", f"{seeds[0]}..{seeds[-1]}", "--workload", mistake.workload]
    limited = ["/bin/sh", "-c", f'ulimit -t {_MOST_CPU_S}; exec "$@"', "sh", sys.executable, *program]
    played, check, finding = 0, "", ""
    with changed_copy(mistake) as folder:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        process = subprocess.Popen(
            limited, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                played += 1
                result = msgspec.json.decode(line, type=SeedResult)
                if result.findings:
                    check, finding = result.found_by[0], result.findings[0]
                    break
            os.kill(process.pid, signal.SIGKILL)  # `process.kill` may wait for a process that has ended, without `used`
            _, process.returncode, used = os.wait4(process.pid, 0)
    if not finding and played <= seeds[-1] - seeds[0]:
        check, finding = "the process", f"it ended in seed {seeds[0] + played}"
    return Outcome(
        mistake=mistake.path.stem,
        seeds=played,
        cpu_s=used.ru_utime + used.ru_stime,
        check=check,
        finding=finding,
        test=mistake.test,
    )
