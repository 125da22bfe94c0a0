"""Plays many seeds, in this process, in several, or on Spark."""

import logging
from collections import Counter
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from functools import partial
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from odradek import __version__
from odradek.model import PreconditionError
from odradek.model.probes import ProbeCounts
from odradek.runtime import Clock, SystemClock
from odradek.runtime.parent_process import end_with_parent, leave_interrupts_to_parent
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed


class Played(Struct, frozen=True, kw_only=True):
    """The result of a seed, and the real time that it took."""

    result: SeedResult
    wall_s: float


class Totals(Struct, kw_only=True):
    """The sums over the seeds of one command; `earlier` of them were played before it."""

    seeds: int = 0
    earlier: int = 0
    failed: list[int] = field(default_factory=list)
    virtual_s: float = 0.0
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.virtual_s += result.virtual_s
        self._add(result.plan.seed, result.findings, result.probes, result.transitions)

    def add_earlier(self, row: Mapping[str, Any]) -> None:
        """Count a seed of the table."""
        self.earlier += 1
        self._add(row["seed"], row["findings"], row["probes"], row["transitions"])

    def _add(self, seed: int, findings: list[str], probes: dict[str, int], transitions: dict[str, int]) -> None:
        if findings:
            self.failed.append(seed)
        self.counts.probes += Counter(probes)
        self.counts.transitions += Counter(transitions)

    def line(self, took_s: float) -> str:
        earlier = f" and {self.earlier:,} before" if self.earlier else ""
        return (
            f"{self.seeds:,} seed{'s' * (self.seeds != 1)}{earlier}, {len(self.failed)} failed, "
            f"{self.virtual_s / 3600:,.2f} virtual h in {took_s:,.0f} s: {self.seeds / took_s:.2f} seeds/s"
        )


def play_seeds(plans: Iterator[SeedPlan], *, workers: int) -> Iterator[Played]:
    """Yield the results of the plans, in the order in which they end."""
    if workers == 1:
        yield from map(_play, plans)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        running: set[Future[Played]] = {pool.submit(_play, each) for each in islice(plans, workers)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(_play, each) for each in islice(plans, len(done))}
                for future in done:
                    yield future.result()
        except BaseException:  # Ctrl-C: do not wait for the seeds that are played
            for worker in active_children():
                worker.terminate()
            raise


def play_on_spark(spark: Any, plans: Iterator[SeedPlan]) -> Generator[Played]:
    """Yield the results of the plans from Spark's executors, in the order in which their jobs end."""
    from odradek.spark.jobs import compute_items

    with closing(compute_items(spark, "odradek sim", plans, partial(_play_on_executor, __version__))) as found:
        for _, data in found:
            yield msgspec.json.decode(data, type=Played)


def plans_of(
    plan: SeedPlan, seeds: Iterable[int], played: Container[int], *, ends_at: float | None, clock: Clock
) -> Iterator[SeedPlan]:
    """Yield the plan with each seed that was not `played`; none after `ends_at`, by the clock's monotonic time."""
    for seed in seeds:
        if ends_at is not None and clock.monotonic() >= ends_at:
            return
        if seed not in played:
            yield replace(plan, seed=seed)


def _play(plan: SeedPlan) -> Played:
    clock = SystemClock()
    began = clock.monotonic()
    return Played(result=run_seed(plan), wall_s=clock.monotonic() - began)


def _play_on_executor(version: str, plan: SeedPlan) -> bytes:
    """Return a `Played` as JSON. `version` is the driver's."""
    if version != __version__:
        raise PreconditionError(f"The executors have Odradek {__version__} and the driver {version}: install one")
    silence()
    return msgspec.json.encode(_play(plan))


def silence() -> None:
    """Turn logging off, because brokers log every effect of a fault."""
    logging.disable(logging.CRITICAL)


def _begin_worker() -> None:
    silence()
    leave_interrupts_to_parent()
    parent = parent_process()
    end_with_parent(None if parent is None else parent.pid)
