"""The directory of a sweep's results: saves finished scenarios, and finds the missing ones.

    DIRECTORY/.odradek.lock                                 held while the sweep runs
    DIRECTORY/sweep.json                                    the definition; `begin` refuses another sweep's
    DIRECTORY/results/strategy=range/0-1000.parquet         settings 0 to 999 with this strategy
    DIRECTORY/results/strategy=range/.1000-2000.parquet     being written; removed by the next start
    DIRECTORY/heatmaps/moved.svg
    DIRECTORY/spark.log                                     the output of Spark's JVM and of its Python workers

A file is renamed after its content is synced, so each file is complete, and its name says which scenarios it has. After
a `kill -9`, the next start computes the scenarios that no file has. Readers of Parquet ignore names that begin with a
dot.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from odradek import __version__
from odradek.lab.case import LabError
from odradek.lab.sweep.settings import Sweep
from odradek.model import StorageError
from odradek.runtime import Disk, DiskLock

_LOCK: Final = ".odradek.lock"
_DEFINITION: Final = "sweep.json"
_FILE: Final = re.compile(r"(\d+)-(\d+)\.parquet")
_FORMAT: Final = 1
"""The version of the table's columns and of the order of settings."""


class Batch(NamedTuple):
    """Scenarios that are computed and saved together: settings `first` to `last` - 1 with one strategy."""

    strategy: str
    first: int
    last: int


class Results:
    """The results of a sweep. `begin` locks the directory for writing; reading needs no lock."""

    def __init__(self, disk: Disk, sweep: Sweep) -> None:
        self._disk = disk
        self._sweep = sweep
        self._lock: DiskLock | None = None
        self.table = f"{sweep.directory}/results"
        self.heat_maps = f"{sweep.directory}/heatmaps"
        self.log = Path(sweep.directory) / "spark.log"

    def begin(self) -> None:
        """Make and lock the directory, and remove unfinished files of a killed process.

        Raises `StorageError` if another process holds the lock, and `LabError` for the results of another sweep.
        """
        directory = self._sweep.directory
        self._disk.make_directories(directory)
        try:
            self._lock = self._disk.lock(f"{directory}/{_LOCK}", "odradek lab sweep")
        except BlockingIOError as error:
            raise StorageError(f"{directory} is in use by {error}: wait for it, or stop it first") from None
        self.check_definition()
        if not self._disk.exists(f"{directory}/{_DEFINITION}"):
            self._disk.replace_file(f"{directory}/{_DEFINITION}", f"{json.dumps(self._definition())}\n".encode())
        for strategy in self._sweep.strategies:
            folder = self._folder(strategy)
            self._disk.make_directories(folder)
            for name in self._disk.list(folder):
                if name.startswith("."):
                    self._disk.remove(f"{folder}/{name}")

    def check_definition(self) -> None:
        """Raise `LabError` if the directory has results of another sweep, `StorageError` if `sweep.json` is invalid."""
        path = f"{self._sweep.directory}/{_DEFINITION}"
        if not self._disk.exists(path):
            return
        try:
            before = dict(json.loads(self._disk.read_file(path)))
        except ValueError:
            raise StorageError(f"{path} is not of a sweep: choose another out, or remove that file") from None
        now = self._definition()
        different = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if different:
            raise LabError(
                f"{self._sweep.directory} has the results of another sweep, with another {', '.join(different)}: "
                "choose another out, or remove the directory"
            )

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def finished(self, strategy: str) -> list[tuple[int, int]]:
        """Return the finished settings as sorted ranges `(first, last)`, `last` excluded.

        Raises `StorageError` if a setting is in two files.
        """
        folder = self._folder(strategy)
        names = self._disk.list(folder) if self._disk.exists(folder) else []
        found = sorted((int(match[1]), int(match[2])) for name in names if (match := _FILE.fullmatch(name)))
        for (_, last), (first, _) in pairwise(found):
            if first < last:
                raise StorageError(f"{folder} has setting {first:,} in two files: remove one of them")
        return found

    def finished_count(self) -> int:
        """Return the number of scenarios that are finished."""
        return sum(last - first for strategy in self._sweep.strategies for first, last in self.finished(strategy))

    def missing(self, setting_count: int) -> list[Batch]:
        """Return batches of the missing scenarios of the first `setting_count` settings, in the order of settings."""
        found = [
            Batch(strategy, start, min(start + self._sweep.batch, last))
            for strategy in self._sweep.strategies
            for first, last in gaps(self.finished(strategy), setting_count)
            for start in range(first, last, self._sweep.batch)
        ]
        return sorted(found, key=lambda batch: batch.first)

    def save(self, batch: Batch, data: bytes) -> None:
        """Write the file of a batch, and sync it to the disk."""
        folder, name = self._folder(batch.strategy), f"{batch.first}-{batch.last}.parquet"
        hidden = f"{folder}/.{name}"
        file = self._disk.open(hidden, create=True)
        try:
            file.truncate(0)
            file.append([data])
            file.sync()
        finally:
            file.close()
        self._disk.rename(hidden, f"{folder}/{name}")
        self._disk.sync_directory(folder)

    def save_heat_maps(self, pictures: Mapping[str, bytes]) -> list[str]:
        """Write the pictures, given by file name; return the names."""
        self._disk.make_directories(self.heat_maps)
        for name, data in pictures.items():
            self._disk.replace_file(f"{self.heat_maps}/{name}", data)
        return list(pictures)

    def _folder(self, strategy: str) -> str:
        return f"{self.table}/strategy={quote(strategy, safe='')}"

    def _definition(self) -> dict[str, object]:
        return {"format": _FORMAT, "version of Odradek": __version__, **self._sweep.definition()}


def gaps(found: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of 0 to `count` - 1 that are in no range of `found`, which must be sorted."""
    start = 0
    for first, last in found:
        if start < min(first, count):
            yield start, min(first, count)
        start = max(start, last)
    if start < count:
        yield start, count
