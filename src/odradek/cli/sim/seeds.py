"""Plays many seeds, in this process or in several."""

import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import active_children, get_context, parent_process

from msgspec import Struct, field
from msgspec.structs import replace

from odradek.model.probes import ProbeCounts
from odradek.runtime import Clock
from odradek.runtime.parent_process import end_with_parent, leave_interrupts_to_parent
from odradek.testing.simulated_cluster.seed_run import SeedPlan, SeedResult, run_seed


class Totals(Struct, kw_only=True):
    """The sums over the seeds of one command."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    virtual_s: float = 0.0
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def add(self, result: SeedResult) -> None:
        """Count a seed."""
        self.seeds += 1
        self.virtual_s += result.virtual_s
        if result.findings:
            self.failed.append(result.plan.seed)
        self.counts.probes += Counter(result.probes)
        self.counts.transitions += Counter(result.transitions)

    def line(self, took_s: float) -> str:
        """Return the totals in one line."""
        return (
            f"{self.seeds:,} seeds, {len(self.failed)} failed, {self.virtual_s / 3600:,.2f} virtual h in "
            f"{took_s:,.0f} s: {self.seeds / took_s:.2f} seeds/s"
        )


def play_seeds(
    plan: SeedPlan, first: int, last: int | None, *, workers: int, ends_at: float | None, clock: Clock
) -> Iterator[SeedResult]:
    """Yield the results of the seeds from `first` to `last`, in the order in which they end.

    No seed begins after `ends_at`, by the clock's monotonic time.
    """
    plans = _plans(plan, first, last, ends_at, clock)
    if workers == 1:
        yield from map(run_seed, plans)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        running: set[Future[SeedResult]] = {pool.submit(run_seed, each) for each in islice(plans, workers)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(run_seed, each) for each in islice(plans, len(done))}
                for future in done:
                    yield future.result()
        except BaseException:  # Ctrl-C: do not wait for the seeds that are played
            for worker in active_children():
                worker.terminate()
            raise


def silence() -> None:
    """Turn logging off, because brokers log every effect of a fault."""
    logging.disable(logging.CRITICAL)


def _begin_worker() -> None:
    silence()
    leave_interrupts_to_parent()
    parent = parent_process()
    end_with_parent(None if parent is None else parent.pid)


def _plans(plan: SeedPlan, first: int, last: int | None, ends_at: float | None, clock: Clock) -> Iterator[SeedPlan]:
    seed = first
    while (last is None or seed <= last) and (ends_at is None or clock.monotonic() < ends_at):
        yield replace(plan, seed=seed)
        seed += 1
