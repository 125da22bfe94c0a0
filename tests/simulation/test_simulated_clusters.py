"""M1, M6, M7, M9, M12. Whole clusters: each seed draws its workloads, its cluster and its faults.

`ODRADEK_SEEDS=1000 pytest tests/simulation/test_simulated_clusters.py` plays 1,000 seeds; `odradek sim` is faster.
"""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.simulation.faults.catalogue import names_for
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed
from odradek.simulation.shrinking import shrunk
from odradek.simulation.workloads.catalogue import WORKLOADS, draw_workloads
from odradek.simulation.workloads.classic_group import Actor
from odradek.simulation.workloads.compacted import Compacted
from odradek.simulation.workloads.feeder import Feeder
from tests.world.sampling import assert_no_findings, seeds

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", seeds(1))
def test_a_cluster_keeps_its_promises_under_the_faults_of_a_seed(seed: int) -> None:
    result = run_seed(SeedPlan(seed=seed))
    assert_no_findings(result)


QUIET = {"cut_power", "flip_bit"}
"""Faults that are skipped or replaced while a replica may be out of sync."""


@pytest.mark.parametrize("name", [name for name in dict.fromkeys(names_for(["records"])) if name not in QUIET])
def test_a_cluster_recovers_from_each_fault_alone(name: str) -> None:
    result = run_seed(SeedPlan(seed=1, workloads=("records",), faults=(name,), count=2, virtual_s=10.0))
    assert_no_findings(result)
    assert {deed.split()[2] for deed in result.deeds if deed[0].isdigit()} == {name}


@pytest.mark.parametrize(
    ("workload", "kind", "method"),
    [("classic-group", Actor, "_act"), ("consumer-group", Feeder, "_feed"), ("compacted", Compacted, "_write")],
)
def test_a_failed_client_that_would_be_cancelled_at_the_end_is_a_finding(
    workload: str, kind: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = getattr(kind, method)

    async def fail(client: Any) -> Any:
        if getattr(client, "name", "member-1") != "member-1":
            return await act(client)
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await act(client)
        raise BrokenPromiseError("planted")

    monkeypatch.setattr(kind, method, fail)
    plan = SeedPlan(seed=1, workloads=(workload,), faults=("blink",), count=3, virtual_s=60.0)
    assert run_seed(plan).findings == ["planted"]


def test_seeds_draw_every_workload_and_one_or_two_at_a_time_beside_security() -> None:
    drawn = [draw_workloads(seed) for seed in range(60)]
    assert {name for names in drawn for name in names} == WORKLOADS.keys()
    assert {len({*names} - {"security"}) for names in drawn} == {1, 2}


@pytest.mark.parametrize("needed", [{1, 4}, {0}, set[int](), {0, 1, 2, 3, 4}])
def test_a_failed_schedule_is_shrunk_to_the_deeds_that_it_takes(needed: set[int]) -> None:
    def run(plan: SeedPlan) -> SeedResult:
        played = range(5) if plan.kept is None else sorted(plan.kept)
        deeds = [f"{number} 1.00 kill 1 0" for number in played]
        found = ["lost"] if needed <= set(played) else []
        return replace(result, plan=plan, deeds=deeds, findings=found)

    result = SeedResult(plan=SeedPlan(seed=1), digest="", findings=[], deeds=[], virtual_s=1.0, events=1, trace=[])
    assert [int(deed[0]) for deed in shrunk(run(result.plan), run=run).deeds] == sorted(needed)


# ---- One seed in every process ---------------------------------------------------------------------------------------

PYTHONS = os.environ.get("ODRADEK_PYTHONS", "").split()


PROGRAM = """
import logging, sys
import msgspec
from odradek.simulation.seed_run import SeedPlan, run_seed
logging.disable()
for seed in map(int, sys.argv[1:]):
    result = run_seed(SeedPlan(seed=seed, virtual_s=20.0))
    print(msgspec.json.encode(result, order="deterministic").decode())
"""


def results(python: str, hash_seed: str, *seeds: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src"}
    command = [python, "-c", PROGRAM, *map(str, seeds)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=240)
    return done.stdout


def test_two_processes_with_other_hashes_of_strings_give_the_same_result():
    first = results(sys.executable, "0", 4)
    assert '"digest"' in first
    assert first == results(sys.executable, "1", 4)


@pytest.mark.needs("pythons")
def test_every_release_of_python_gives_the_same_result():
    here = results(sys.executable, "0", 2, 3, 9)
    assert {python: results(python, "2", 2, 3, 9) for python in PYTHONS} == dict.fromkeys(PYTHONS, here)
