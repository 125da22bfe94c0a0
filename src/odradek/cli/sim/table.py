"""The table of played seeds, which the same command continues.

DIRECTORY/.odradek.lock            held while seeds are played
DIRECTORY/sim.json                 the settings of the seeds; `opened` refuses others
DIRECTORY/seeds/0000017.parquet    up to 1,000 seeds; a file is complete, or is not there
DIRECTORY/sim-SEED.json, .svg      failures
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import click
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import odradek
from odradek.cli.sim.seeds import Played, Totals
from odradek.model import ConfigurationError, StorageError
from odradek.runtime import Clock, SystemDisk
from odradek.simulation.seed_run import SeedPlan
from odradek.simulation.workloads.catalogue import draw_workloads

_FORMAT: Final = 1
_MOST_ROWS: Final = 1_000
_LONGEST_S: Final = 20.0
"""Played seeds are saved once this time has passed; a `kill -9` loses those since the last save."""
_TEXTS: Final = pa.list_(pa.string())
_COUNTS: Final = pa.map_(pa.string(), pa.int64())
_SCHEMA: Final = pa.schema(
    {
        "seed": pa.int64(), "commit": pa.string(), "version": pa.string(), "workloads": _TEXTS, "faults": _TEXTS,
        "findings": _TEXTS, "digest": pa.string(), "virtual_s": pa.float64(), "wall_s": pa.float64(),
        "events": pa.int64(), "probes": _COUNTS, "transitions": _COUNTS,
    }
)  # fmt: skip


class SeedTable:
    """The seeds of one directory. `played` are those of earlier commands and of this one."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._seeds = directory / "seeds"
        self._clock = clock
        self._commit = _commit()
        self._rows: list[dict[str, Any]] = []
        self._saved_at = clock.monotonic()
        self.played: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.save()
        if kind is not None:
            click.echo(
                f"{len(self.played):,} seeds are kept in {self._directory}: the same command continues", err=True
            )

    def read(self, first: int, last: int | None) -> Totals:
        """Find the seeds that were played; print and return the totals of those from `first` to `last`."""
        totals = Totals()
        for path in sorted(self._seeds.glob("*.parquet")):
            try:
                rows = pq.read_table(path, schema=_SCHEMA).to_pylist(maps_as_pydicts="strict")
            except (pa.ArrowException, OSError) as error:
                raise StorageError(f"{path} cannot be read; without it, its seeds are played again: {error}") from None
            self.played |= {row["seed"] for row in rows}
            for row in rows:
                if first <= row["seed"] and (last is None or row["seed"] <= last):
                    totals.add_earlier(row)
        if totals.earlier:
            failed = ", ".join(map(str, totals.failed)) or "none"
            click.echo(f"{totals.earlier:,} seeds were played before; failed: {failed}", err=True)
        return totals

    def add(self, played: Played) -> None:
        """Add a played seed, and save the new ones if they are many or old."""
        result = played.result
        row = {name: getattr(result, name, None) for name in _SCHEMA.names} | {
            "seed": result.plan.seed,
            "commit": self._commit,
            "version": odradek.__version__,
            "workloads": list(result.plan.workloads or draw_workloads(result.plan.seed)),
            "faults": result.deeds,
            "wall_s": played.wall_s,
        }
        self._rows.append(row)
        self.played.add(result.plan.seed)
        if len(self._rows) >= _MOST_ROWS or self._clock.monotonic() - self._saved_at > _LONGEST_S:
            self.save()

    def save(self) -> None:
        """Write the new seeds to a file of their own."""
        self._saved_at = self._clock.monotonic()
        if not self._rows:
            return
        output = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(self._rows, schema=_SCHEMA), output, compression="zstd")
        number = max((int(path.stem) for path in self._seeds.glob("*.parquet") if path.stem.isdecimal()), default=-1)
        path = self._seeds / f"{number + 1:07}.parquet"
        SystemDisk().replace_file(str(path), output.getvalue().to_pybytes())
        self._rows = []


@contextmanager
def opened(directory: Path, plan: SeedPlan, clock: Clock) -> Iterator[SeedTable]:
    """Yield the table of a directory, locked, and save what was played.

    Raises `ConfigurationError` if the directory has seeds of other settings or of another version.
    """
    table, disk = SeedTable(directory, clock), SystemDisk()
    disk.make_directories(str(directory / "seeds"))
    try:
        lock = disk.lock(str(directory / ".odradek.lock"), "odradek sim")
    except BlockingIOError as error:
        raise StorageError(f"{directory} is in use by {error}: wait for it, or choose another --output") from None
    try:
        _check_settings(directory / "sim.json", plan)
        with table:
            yield table
    finally:
        lock.release()


def _check_settings(path: Path, plan: SeedPlan) -> None:
    now = json.loads(msgspec.json.encode(plan)) | {"format": _FORMAT, "version": odradek.__version__, "seed": None}
    if not path.exists():
        SystemDisk().replace_file(str(path), json.dumps(now).encode())
        return
    try:
        before = dict(json.loads(path.read_bytes()))
    except ValueError:
        raise StorageError(f"{path} is not of odradek sim: choose another --output, or remove that file") from None
    if different := sorted(key for key in {*before, *now} if before.get(key) != now.get(key)):
        raise ConfigurationError(
            f"{path.parent} has seeds of other settings ({', '.join(different)}): choose another --output, or remove it"
        )


def _commit() -> str:
    """Return the commit of the source tree that runs, or an empty text if Odradek is installed as a package."""
    root = Path(odradek.__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
