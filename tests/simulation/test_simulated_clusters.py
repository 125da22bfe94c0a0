"""M1, M6, M7, M9, M12. Whole clusters: each seed draws its workloads, its cluster and its faults.

`ODRADEK_SEEDS=1000 pytest tests/simulation/test_simulated_clusters.py` plays 1,000 seeds; `odradek sim` is faster.
"""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final

import pytest
from msgspec.structs import replace

from odradek.broker.replication.stray_logs import StrayLogs
from odradek.model import TopicPartition
from odradek.simulation.checks import folders
from odradek.simulation.faults.catalogue import FAULTS, names_for
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.histories import verdict
from odradek.simulation.promises import BROKERS, BrokenPromiseError
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed
from odradek.simulation.setup import CONFIG
from odradek.simulation.shrinking import shrunk
from odradek.simulation.workloads.catalogue import WORKLOADS, draw_workloads
from odradek.simulation.workloads.classic_group import Actor
from odradek.simulation.workloads.compacted import Compacted
from odradek.simulation.workloads.feeder import Feeder
from odradek.simulation.workloads.records import TOPIC, RecordingProducer
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from odradek.testing import History, Survival
from tests.world.sampling import assert_no_findings, seeds

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", seeds(1))
def test_a_cluster_keeps_its_promises_under_the_faults_of_a_seed(seed: int) -> None:
    result = run_seed(SeedPlan(seed=seed))
    assert_no_findings(result)


@pytest.mark.parametrize("seed", seeds(4))
def test_brokers_have_only_the_folders_of_their_replicas_after_topics_came_went_and_moved(seed: int) -> None:
    faults = ("stop", "kill", "expire", "reassign")
    plan = SeedPlan(seed=seed, workloads=("administration", "records"), faults=faults, count=10, virtual_s=80.0)
    assert_no_findings(run_seed(plan))


@pytest.mark.parametrize("seed", seeds(4))
def test_replicas_move_between_directories_through_all_that_can_interrupt_them(seed: int) -> None:
    faults = ("move_directory", "kill", "cut_power", "lose_directory", "fill_disk", "move_directory")
    config = {"log.dirs": "/data-1,/data-2", "replica.alter.log.dirs.io.max.bytes.per.second": "20000"}
    plan = SeedPlan(seed=seed, workloads=("records",), faults=faults, count=10, virtual_s=80.0, config=config)
    assert_no_findings(run_seed(plan))


def test_logs_that_are_not_deleted_when_their_broker_returns_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrayLogs, "_delete", lambda *_, **__: None)
    monkeypatch.setattr(folders, "PATIENCE_S", 120.0)
    plan = SeedPlan(seed=0, workloads=("administration",), faults=("stop", "kill"), count=10, virtual_s=80.0)
    assert any("still has the folder ledger-" in finding for finding in run_seed(plan).findings)


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


# ---- Records ---------------------------------------------------------------------------------------------------------

PARTITIONS: Final = 2


def play(seed: int, **plan: Any) -> SeedResult:
    """Play records, and fail with the findings."""
    result = run_seed(SeedPlan(seed=seed, workloads=("records",), **plan))
    assert_no_findings(result)
    return result


@pytest.mark.parametrize("number", seeds(6))
def test_acknowledged_records_are_not_lost_duplicated_or_reordered_under_faults(number: int):
    """M1, M9."""
    assert play(number).deeds


@pytest.mark.parametrize("number", seeds(2))
def test_with_group_flush_all_brokers_may_lose_power(number: int):
    """M1. `log.flush.mode=group`: what is acknowledged is on the disk of every replica in sync."""
    assert play(number, config={"log.flush.mode": "group"}).deeds


def test_the_seed_of_this_run_is_played_with_longer_schedules(seed: int):
    """M1, M9."""
    assert play(seed, count=20, virtual_s=240.0).deeds


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("noticed_at_once", [True, False])
def test_a_broker_that_lost_its_records_to_a_power_cut_follows_before_it_leads(number: int, noticed_at_once: bool):
    """M1. It restarts as its session ends, before its death was noticed, as leader or as controller."""

    async def scenario(world: World) -> None:
        history, schedule = History(), Schedule(world, FAULTS)
        schedule.topics = [TOPIC]
        await create_topic(world, TOPIC, PARTITIONS)
        producer = RecordingProducer(world, history, "writer-0")
        await producer.start()
        await until(lambda: history.acknowledged() > 50)
        await world.cut_power(Survival.LOSE, number)
        await world.start(number)
        await until(lambda: history.acknowledged() > 100)
        await until(schedule.is_whole)
        await producer.stop()
        for place, records in (await world.read_records(TOPIC, PARTITIONS)).items():
            history.audit(TopicPartition(TOPIC, place), [(each.offset, each.value or b"") for each in records])
        assert verdict(history) == ""

    World(number, CONFIG, brokers=BROKERS, noticed_at_once=noticed_at_once).play(scenario)


def test_one_plan_has_one_result():
    assert play(3) == play(3)
    assert play(3).digest != play(5).digest


def test_a_deed_that_is_left_out_changes_no_other():
    def drawn(kept: frozenset[int] | None) -> list[str]:
        return [
            deed.split(" ")[0] + deed.split(" ", 2)[2] for deed in play(3, kept=kept, config={"brokers": "3"}).deeds
        ]

    whole = drawn(None)
    assert drawn(frozenset({0, 2, 3})) == [each for each in whole if each[0] in "023"] != whole
