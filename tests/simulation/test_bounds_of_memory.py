"""A container that grows without bound is a finding."""

from typing import Any

import pytest

from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.server import Server
from odradek.simulation.checks import bounds
from odradek.simulation.seed_run import SeedPlan, run_seed


@pytest.mark.parametrize(("kind", "method", "what"), [
    (Server, "connection_closed", "connections"),
    (Purgatory, "release", "parked requests"),
])  # fmt: skip
def test_a_planted_leak_is_found(kind: type, method: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = getattr(kind, method)
    container = {"connection_closed": "_connections", "release": "_timers"}[method]

    def leak(owner: Any, each: Any) -> Any:
        kept = getattr(owner, container).get(each)
        result = release(owner, each)
        if kept is not None:
            getattr(owner, container)[object()] = kept
        return result

    monkeypatch.setattr(kind, method, leak)
    monkeypatch.setattr(bounds, "PATIENCE_S", 1.0)
    plan = SeedPlan(seed=1, workloads=("records",), faults=("reject",), count=4, virtual_s=10.0)
    findings = run_seed(plan).findings
    assert any(what in each for each in findings), findings
