"""The search for the fewest faults and workloads with which a seed still fails: delta debugging over its deeds."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from odradek.simulation.faults.catalogue import names_for
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed
from odradek.simulation.setup import draw_setup
from odradek.simulation.workloads.catalogue import draw_workloads

MOST_TRIES: Final = 24
"""The most runs that one search makes."""


def shrunk(
    failed: SeedResult, *, tries: int = MOST_TRIES, run: Callable[[SeedPlan], SeedResult] = run_seed
) -> SeedResult:
    """Return the result with the fewest deeds, then workloads, that has a finding; found with at most `tries` runs."""
    kept = sorted({int(deed.split()[0]) for deed in failed.deeds if deed.split()[0].isdigit()})
    best, size = failed, len(kept)
    while size and tries:
        for part in _parts(kept, size):
            tries -= 1
            result = run(replace(failed.plan, kept=frozenset(kept) - frozenset(part)))
            if result.findings:
                best, kept = result, [number for number in kept if number not in part]
                size = min(size, len(kept))
                break
            if not tries:
                break
        else:
            size //= 2
    for name in best.plan.workloads or draw_workloads(best.plan.seed):
        left = [each for each in best.plan.workloads or draw_workloads(best.plan.seed) if each != name]
        if left and tries:
            tries -= 1
            # The faults that are drawn depend on the workloads.
            brokers = draw_setup(best.plan.seed, best.plan.config).brokers
            faults = best.plan.faults or tuple(names_for([*left, name], brokers=brokers))
            result = run(replace(best.plan, workloads=tuple(left), faults=faults))
            best = result if result.findings else best
    return best


def _parts(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
