"""Tests of planted faults: a seed finds each one, and finds nothing without it."""

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from odradek.simulation import promises
from odradek.simulation.seed_run import SeedPlan, run_seed
from tests.world.sampling import assert_no_findings

Plant = Callable[[pytest.MonkeyPatch], None]


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """Make a planted fault of a function that replaces `owner.name`, which it gets as its first argument."""

    def make(fault: Callable[..., Any]) -> Plant:
        def plant(patch: pytest.MonkeyPatch) -> None:
            original = getattr(owner, name)
            patch.setattr(owner, name, lambda *given, **more: fault(original, *given, **more))

        return update_wrapper(plant, fault, ("__module__", "__name__", "__qualname__", "__doc__"))

    return make


@contextmanager
def without_logging() -> Iterator[None]:
    """Disable logging, whose entries would keep errors and their worlds."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)  # which also clears what loggers remember of being disabled


def assert_found(plant: Plant, plan: SeedPlan, *, most: int, patience_s: float = promises.PATIENCE_S) -> None:
    """Fail unless one of `most` seeds, from the plan's on, finds the planted fault, and nothing without it.

    `patience_s` replaces `PATIENCE_S`, for faults after which something is never done.
    """
    for seed in range(plan.seed, plan.seed + most):
        tried = replace(plan, seed=seed)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), without_logging():
            warnings.simplefilter("ignore", ResourceWarning)  # a run that fails closes no clients
            _set_patience(patch, patience_s)
            plant(patch)
            result = run_seed(tried)
            for _ in range(5):  # finalizers of tasks may leave more garbage
                gc.collect()
        if result.findings:
            assert not any(each.startswith("AssertionError") for each in result.findings), "it is no sentence"
            return _assert_clean(msgspec.json.encode(tried), patience_s)
    pytest.fail(f"no seed from {plan.seed} to {plan.seed + most - 1} finds it")


@cache
def _assert_clean(plan: bytes, patience_s: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _set_patience(patch, patience_s)
        assert_no_findings(run_seed(msgspec.json.decode(plan, type=SeedPlan)))


def _set_patience(patch: pytest.MonkeyPatch, patience_s: float) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("odradek.simulation.") and hasattr(module, "PATIENCE_S"):
            patch.setattr(module, "PATIENCE_S", patience_s)
