"""SPEC 12 on virtual time: three brokers, replication factor 3, `min.insync.replicas` 2, and faults that a seed draws.

`ODRADEK_SEEDS=1000 pytest tests/simulation/test_faults_in_virtual_time.py` tries so many, `500-1000` those.
"""

from typing import Any, Final

import pytest

from odradek.model import TopicPartition
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.histories import verdict
from odradek.simulation.promises import BROKERS
from odradek.simulation.seed_run import SeedPlan, SeedResult, run_seed
from odradek.simulation.setup import CONFIG
from odradek.simulation.workloads.records import TOPIC, RecordingProducer
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from odradek.testing import History, Survival
from tests.world.sampling import assert_no_findings, seeds

pytestmark = pytest.mark.long

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
        return [deed.split(" ")[0] + deed.split(" ", 2)[2] for deed in play(3, kept=kept).deeds]

    whole = drawn(None)
    assert drawn(frozenset({0, 2, 3})) == [each for each in whole if each[0] in "023"] != whole
