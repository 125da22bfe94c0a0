"""How much of a large set a test tries: a sample of it in `make test`, all of it by `ODRADEK_SEEDS`."""

import os
import random

from odradek.simulation.seed_run import SeedResult


def seeds(count: int) -> range:
    """Return the seeds to be tried: so many, or those that `ODRADEK_SEEDS` names (`1000`, or `500-1000`)."""
    first, _, last = os.environ.get("ODRADEK_SEEDS", f"{count}").rpartition("-")
    return range(int(first or 0), int(last))


def crash_points(count: int, seed: int, *, every: int = 4) -> range:
    """Return the changes of a disk, 1 to `count`, at which a crash is tried: each `every`th from one that `seed` draws.

    With `ODRADEK_SEEDS` they are all.
    """
    if "ODRADEK_SEEDS" in os.environ:
        return range(1, count + 1)
    return range(random.Random(seed).randrange(1, every + 1), count + 1, every)


def assert_no_findings(result: SeedResult) -> None:
    """Fail with the findings of a seed and its faults."""
    assert not result.findings, "\n".join([*result.findings, *result.deeds, result.error])
