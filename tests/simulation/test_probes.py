"""Probes and transitions: counted in a collection only, and listed from the source and the tables."""

import re
from pathlib import Path

from odradek.model.probes import ProbeCounts, collecting, probe, transition
from odradek.simulation import coverage
from odradek.simulation.world import World

SOURCE = Path(coverage.__file__).parents[1]


def test_a_probe_counts_only_while_its_collection_is_open():
    probe("test: a branch")
    with collecting() as outer:
        probe("test: a branch")
        with collecting() as inner:
            probe("test: a branch")
            transition("test", "A", "B")
    probe("test: a branch")
    assert outer.probes == inner.probes == {"test: a branch": 1}
    assert (outer.transitions, inner.transitions) == ({}, {"test: A -> B": 1})


def test_every_probe_has_a_name_of_its_own_that_begins_with_its_room():
    sources = [path for path in SOURCE.rglob("*.py") if path.name not in {"probes.py", "coverage.py"}]
    calls = sum(len(re.findall(r"\bprobe\(", path.read_text())) for path in sources)
    names = coverage.probes()
    assert len(names) == calls >= 40
    rooms = "log recovery, log, replication, controller, coordinator, groups, transactions, producer, consumer"
    assert {name.partition(": ")[0] for name in names} == set(rooms.split(", "))


def test_a_cluster_that_is_killed_makes_no_transition_that_the_tables_lack():
    async def scenario(world: World) -> None:
        await world.create_topic("t", 2)
        async with world.producer("writer", transactional_id="id") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"1")
            await producer.commit_transaction()
        async with world.consumer("reader", "t", group_id="group") as consumer:
            assert len(await consumer.poll(10_000)) == 1
        await world.restart()

    with collecting() as counts:
        World(1).play(scenario)
    assert "transaction: PREPARE_COMMIT -> COMPLETE_COMMIT" in counts.transitions
    assert counts.transitions.keys() <= coverage.transitions()
    assert not set(coverage.unreached(counts)) & (counts.probes.keys() | counts.transitions.keys())


def test_without_any_count_everything_is_unreached():
    assert len(coverage.unreached(ProbeCounts())) == len(coverage.probes()) + len(coverage.transitions())
