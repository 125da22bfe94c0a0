"""Planted faults of logs, replication and the controller, one at a time, which the checks of a simulated cluster find.

Those of groups are in `test_group_histories_in_virtual_time.py`, those of transactions in
`test_planted_transaction_faults.py`. docs/reliability.md lists them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from odradek.broker.cluster.metadata import metadata_loop
from odradek.broker.replication.partition import Partition
from odradek.clients import Producer
from odradek.log import segment_deletion
from odradek.log.producers.producer_state import ProducerState
from odradek.log.segments.segment import Segment
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer
from odradek.model import TopicPartition
from odradek.replication.leader import LeaderReplication
from odradek.testing.simulated_cluster import seed_run
from odradek.testing.simulated_cluster.seed_run import SeedPlan, run_seed
from odradek.testing.world import Scenario, World, until

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledgements_before_replication(patch: pytest.MonkeyPatch) -> None:
    when_reached = Partition.when_reached

    def soon(partition: Any, info: Any, *, acks: int, waiter: Any) -> None:
        when_reached(partition, info.last_offset + 1, acks=1, waiter=waiter)

    patch.setattr(Partition, "when_acknowledged", soon)


def the_high_watermark_ignores_followers(patch: pytest.MonkeyPatch) -> None:
    def advance(replication: Any, **_: Any) -> bool:
        before, replication.high_watermark = replication.high_watermark, replication.log_end_offset
        return bool(replication.high_watermark > before)

    patch.setattr(LeaderReplication, "advance", advance)


def every_broker_claims_the_controller_in_one_epoch(patch: pytest.MonkeyPatch) -> None:
    register = metadata_loop.register_controller

    async def claim(store: Any, broker_id: int, now_ms: int) -> tuple[int, int] | None:
        if await store.get(paths.CONTROLLER) is None:
            return await register(store, broker_id, now_ms)
        node = await store.get(paths.CONTROLLER_EPOCH)
        return decode_integer(paths.CONTROLLER_EPOCH, node.data), node.version

    patch.setattr(metadata_loop, "register_controller", claim)
    patch.setattr(seed_run, "PATIENCE_S", 10.0)  # the brokers never agree, and elect controllers all the time


def repeated_batches_are_appended_again(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check
    patch.setattr(ProducerState, "find", lambda *_: None)
    patch.setattr(ProducerState, "check", lambda state, header, **_: check(state, header, has_sequence=False))


def followers_do_not_know_producers(patch: pytest.MonkeyPatch) -> None:
    replay = ProducerState.replay

    def forget(state: Any, header: Any, marker: Any, *, now_ms: int = -1) -> Any:
        return replay(state, header, marker) if now_ms < 0 else None

    patch.setattr(ProducerState, "replay", forget)


def an_index_is_one_off(patch: pytest.MonkeyPatch) -> None:
    find = Segment.find
    patch.setattr(
        Segment, "find", lambda segment, offset: find(segment, min(offset + 1, max(segment.next_offset - 1, offset)))
    )


def retention_deletes_all_but_the_active_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment_deletion, "count_expired", lambda segments, config, **_: max(len(segments) - 1, 0))


def min_insync_replicas_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "min_insync_replicas", 1)


# ---- seeds

FOUND_BY_SEED: Final[Mapping[Plant, SeedPlan]] = {
    every_broker_claims_the_controller_in_one_epoch: SeedPlan(
        seed=0, workloads=("records",), faults=("depose", "expire", "kill"), count=8
    ),
    an_index_is_one_off: SeedPlan(seed=0, workloads=("records",)),
    retention_deletes_all_but_the_active_segment: SeedPlan(
        seed=0,
        workloads=("records",),
        config={"log.segment.bytes": "1024", "log.retention.check.interval.ms": "1000"},
    ),
}


@pytest.mark.parametrize("plant", FOUND_BY_SEED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_a_seed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert run_seed(FOUND_BY_SEED[plant]).findings


# ---- scenarios, with only the events that a finding needs

PLACE: Final = TopicPartition("t", 0)
CONFIG: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "unclean.leader.election.enable": "true",
    "replica.lag.time.max.ms": "3000",
}


async def leader_of_a_new_topic(world: World, producer: Producer) -> int:
    await until(lambda: all(len(broker.image.brokers) == 3 for broker in world.running.values()))
    await world.create_topic("t")
    await (await producer.send("t", b"before", partition=0))
    return next(number for number, broker in world.running.items() if broker.partitions.get(PLACE))


async def check_that_acknowledged_records_are_read(world: World, *acknowledged: bytes) -> None:
    assert (await world.read("t", 1))[0][: len(acknowledged)] == list(acknowledged)


async def a_leader_dies_after_its_followers(world: World) -> None:
    """The leader does not return. An unclean election makes a follower the leader, with every acknowledged record."""
    async with world.producer("writer", delivery_timeout_ms=20_000, request_timeout_ms=5_000) as producer:
        leader = await leader_of_a_new_topic(world, producer)
        for number in {0, 1, 2} - {leader}:
            await world.kill(number)
        await until(lambda: world.running[leader].partitions.leader("t", 0).isr == (leader,))
        sent = await asyncio.gather(await producer.send("t", b"alone", partition=0), return_exceptions=True)
    await world.kill(leader)
    for number in {0, 1, 2} - {leader}:
        await world.start(number)
    is_acknowledged = not isinstance(sent[0], BaseException)
    await check_that_acknowledged_records_are_read(world, b"before", *[b"alone"] * is_acknowledged)


async def a_leader_dies_while_it_is_cut_off(world: World) -> None:
    async with world.producer("writer", delivery_timeout_ms=2_000, request_timeout_ms=1_000) as producer:
        leader = await leader_of_a_new_topic(world, producer)
        others = [host for number, host in enumerate(world.hosts) if number != leader]
        world.simulation.network.partition([world.hosts[leader]], others)
        sent = await asyncio.gather(await producer.send("t", b"alone", partition=0), return_exceptions=True)
    await world.kill(leader)
    world.simulation.network.heal()
    is_acknowledged = not isinstance(sent[0], BaseException)
    await check_that_acknowledged_records_are_read(world, b"before", *[b"alone"] * is_acknowledged)


async def a_leader_dies_before_its_response_arrives(world: World) -> None:
    async with world.producer("writer", request_timeout_ms=2_000) as producer:
        leader = await leader_of_a_new_topic(world, producer)
        world.simulation.network.block(world.hosts[leader], "writer")
        sent = await producer.send("t", b"once", partition=0)
        await world.pass_time(1)
        await world.kill(leader)
        await sent
    assert await world.read("t", 1) == {0: [b"before", b"once"]}


FOUND_BY_SCENARIO: Final[Mapping[Plant, Scenario]] = {
    acknowledgements_before_replication: a_leader_dies_while_it_is_cut_off,
    the_high_watermark_ignores_followers: a_leader_dies_while_it_is_cut_off,
    min_insync_replicas_is_ignored: a_leader_dies_after_its_followers,
    repeated_batches_are_appended_again: a_leader_dies_before_its_response_arrives,
    followers_do_not_know_producers: a_leader_dies_before_its_response_arrives,
}


@pytest.mark.parametrize("scenario", dict.fromkeys(FOUND_BY_SCENARIO.values()), ids=lambda each: each.__name__)
def test_a_scenario_passes_without_a_planted_fault(scenario: Scenario) -> None:
    assert World(1, CONFIG, brokers=3).play(scenario)


@pytest.mark.parametrize("plant", FOUND_BY_SCENARIO, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_a_scenario(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        World(1, CONFIG, brokers=3).play(FOUND_BY_SCENARIO[plant])
