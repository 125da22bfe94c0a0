"""Reassignments and elections by the nodes under `/admin` and by requests, on several brokers (M9, M10)."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.controller.machine.elections import ElectionType
from odradek.broker.controller.machine.reassignment import reassignments
from odradek.config.broker import BrokerConfig
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.testing import Simulation
from tests.broker.controller.administered import CONFIG, ELECT, KEY, REASSIGN, Brokers
from tests.world.scenes import played

Scenario = Callable[[Brokers], Coroutine[Any, Any, None]]


@pytest.fixture
def play(seed: int) -> Callable[..., None]:
    def run(scenario: Scenario, *, brokers: int = 4, config: BrokerConfig = CONFIG) -> None:
        simulation = Simulation(seed)

        async def main() -> None:
            world = Brokers(simulation, config)
            await world.start(*range(brokers))
            await scenario(world)
            await world.stop()

        simulation.run(main())

    return run


async def by_node(world: Brokers, *target: int) -> None:
    await world.request(REASSIGN, ("t", 0, target))


async def by_request(world: Brokers, *target: int) -> None:
    assert await world.reassign({KEY: target}) == {}


@pytest.mark.parametrize("ask", [by_node, by_request])
@played
async def test_a_partition_gets_other_replicas_by_request_and_by_node(world: Brokers, ask) -> None:
    """M9, M10: the node and the request do the same, and end in the same tree."""
    await world.create((0, 1), (1, 2))
    await ask(world, 2, 3)
    await world.until_reassigned(2, 3)
    await world.until_gone(REASSIGN)
    topic = await world.node("/brokers/topics/t")
    assert (topic["partitions"]["0"], topic["adding_replicas"], topic["removing_replicas"]) == ([2, 3], {}, {})
    state = await world.node("/brokers/topics/t/partitions/0/state")
    assert (state["leader"], sorted(state["isr"])) == (2, [2, 3])
    begun = [image.partition(KEY) for image in world.history]
    assert any(each and (each.adding_replicas, each.removing_replicas) == ((2, 3), (0, 1)) for each in begun)
    assert world.controller.image.partition(TopicPartition("t", 1)).replicas == (1, 2)
    stopped = {broker_id: broker.replicas.stopped for broker_id, broker in world.brokers.items()}
    assert stopped == {0: [(KEY, True)], 1: [(KEY, True)], 2: [], 3: []}, "deleted where they are no more"


@played
async def test_the_node_s_entries_stay_until_they_are_done_and_progress_is_listed(world: Brokers) -> None:
    """M10."""
    await world.create((0, 1), (0, 1))
    world.lagging = {3}
    await world.request(REASSIGN, ("t", 0, (0, 3)), ("t", 1, (0, 2)))
    await world.until(lambda: world.controller.image.partition(TopicPartition("t", 1)).replicas == (0, 2))
    await asyncio.sleep(1)
    assert await world.node(REASSIGN) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [0, 3]}],
    }
    [(key, progress)] = reassignments(world.controller.image).items()
    assert (key, progress.adding, progress.removing) == (KEY, (3,), (1,))
    world.lagging = set()
    await world.until_gone(REASSIGN)
    await world.until_reassigned(0, 3)


@played
async def test_broken_json_is_logged_once_and_read_again_after_the_next_write(world: Brokers, caplog) -> None:
    """M9."""
    await world.create((0, 1))
    await world.write(REASSIGN, b'{"version":1,"partitions":[{"topic":')
    await world.write(ELECT, b'{"version":1}')
    await asyncio.sleep(30)
    assert caplog.text.count(f"the metadata node {REASSIGN} is broken: not JSON") == 1
    assert caplog.text.count(f"the metadata node {ELECT} is broken: partitions is not a list") == 1
    assert (await world.store.get(REASSIGN)).data.endswith(b'"topic":')
    await by_request(world, 1, 2)
    await world.until_reassigned(1, 2)
    assert await world.store.get(REASSIGN) is not None
    await by_node(world, 3, 2)
    await world.until_reassigned(3, 2)
    await world.until_gone(REASSIGN)


@played
async def test_entries_that_can_t_be_are_named_in_the_log_and_dropped_and_the_others_are_done(
    world: Brokers, caplog
) -> None:
    """M10: a broker that does not exist, a topic that does not, no brokers at all."""
    await world.create((0, 1), (0, 1), (0, 1))
    wishes = [("t", 0, (0, 77)), ("none", 0, (0,)), ("t", 1, ()), ("t", 2, (2, 2)), ("t", 2, (2, 3))]
    await world.request(REASSIGN, *wishes)
    await world.until_gone(REASSIGN)
    assert [each.replicas for each in world.controller.image.topics["t"].partitions.values()] == [
        (0, 1),
        (0, 1),
        (2, 3),
    ]
    for named in (
        "brokers that t-0 would have in addition are not alive: [77]",
        "Unable to find a topic named none.",
        "includes an empty replica list.",
    ):
        assert caplog.text.count(f"an entry of {REASSIGN} is dropped: ") == 3
        assert caplog.text.count(named) == 1


@played
async def test_a_request_overrides_what_the_node_says(world: Brokers) -> None:
    """M10."""
    await world.create((0, 1), (0, 1))
    world.lagging = {3}
    await world.request(REASSIGN, ("t", 0, (0, 3)), ("t", 1, (1, 3)))
    await world.until(lambda: len(reassignments(world.controller.image)) == 2)
    await by_request(world, 1, 2)
    assert [each["partition"] for each in (await world.node(REASSIGN))["partitions"]] == [1]
    await world.until_reassigned(1, 2)
    await asyncio.sleep(5)
    await world.until_reassigned(1, 2)
    assert await world.reassign({TopicPartition("t", 1): None}) == {}
    assert await world.node(REASSIGN) is None
    await world.until(lambda: reassignments(world.controller.image) == {})
    assert set(world.controller.image.partition(TopicPartition("t", 1)).replicas) == {0, 1}


@pytest.mark.parametrize("in_sync", [False, True])
@played
async def test_a_reassignment_is_given_up_in_the_middle(world: Brokers, in_sync) -> None:
    """M10: with null; the partition has what it had, and a leader all the time."""
    await world.create((0, 1))
    world.lagging = {3} if in_sync else {2, 3}
    await world.until(lambda: all(KEY.topic in each.image.topics for each in world.brokers.values()))
    before = len(world.history)
    await by_request(world, 2, 3)
    if in_sync:
        await world.until(lambda: 2 in world.now.isr)
    assert await world.reassign({KEY: None}) == {}
    await world.until_reassigned(0, 1)
    assert all(each.partition(KEY).has_leader for each in world.history[before:])
    again = await world.reassign({KEY: None})
    assert {key: error.code for key, error in again.items()} == {KEY: ErrorCode.no_reassignment_in_progress}


@played
async def test_invalid_requests_have_a_reason_and_change_nothing(world: Brokers) -> None:
    """M10."""
    await world.create((0, 1))
    before = world.controller.image
    gone = TopicPartition("none", 0)
    errors = await world.reassign({KEY: (0, 77), gone: (1,)})
    assert {key: each.code for key, each in errors.items()} == {
        KEY: ErrorCode.invalid_replica_assignment,
        gone: ErrorCode.unknown_topic_or_partition,
    }
    narrower = await world.reassign({KEY: (0,)}, allow_replication_factor_change=False)
    assert narrower[KEY].code is ErrorCode.invalid_replication_factor
    assert world.controller.image is before
    assert await world.reassign({KEY: (0,)}) == {}
    await world.until_reassigned(0)


@played
async def test_a_target_that_dies_is_waited_for_and_a_leader_that_dies_is_replaced(world: Brokers) -> None:
    """M1, M10."""
    await world.create((1, 2))
    world.lagging = {3}
    await by_request(world, 3, 2)
    world.kill_broker(3)
    await asyncio.sleep(20)
    assert world.now.replicas == (3, 2, 1)
    world.lagging = set()
    await world.start(3)
    await world.until_reassigned(3, 2)
    world.lagging = {0}
    await by_request(world, 0, 2)
    world.kill_broker(3)
    await world.until(lambda: world.now.leader == 2)
    world.lagging = set()
    await world.until_reassigned(0, 2)


@pytest.mark.parametrize("way", ["node", "request", "all"])
@played
async def test_the_preferred_replica_leads_again_by_request_and_by_node(world: Brokers, way, caplog) -> None:
    """M9, M10."""
    await world.create((1, 2), (2, 1), (3, 1))
    world.kill_broker(1)
    await world.until(lambda: world.now.leader == 2)
    await world.start(1)
    await world.until(lambda: 1 in world.now.isr)
    if way == "node":
        await world.request(ELECT, ("t", 0), ("t", 1), ("none", 5))
        await world.until_gone(ELECT)
        assert caplog.text.count("refused an election") == 1
        assert "No such topic as none" in caplog.text
    elif way == "request":
        second = TopicPartition("t", 1)
        results = await world.elect([KEY, second])
        assert results[KEY] is None
        assert results[second].code is ErrorCode.election_not_needed
    else:
        assert await world.elect(None) == {KEY: None}
    await world.until(lambda: world.now.leader == 1)
    assert (await world.node("/brokers/topics/t/partitions/0/state"))["leader"] == 1


@played
async def test_an_unclean_election_elects_any_live_replica(world: Brokers) -> None:
    """M10."""
    await world.create((1, 2))
    world.lagging = {2}
    world.kill_broker(2)
    await world.until(lambda: world.now.isr == (1,))
    await world.start(2)
    world.kill_broker(1)
    await world.until(lambda: not world.now.has_leader)
    assert (await world.elect([KEY]))[KEY].code is ErrorCode.preferred_leader_not_available
    assert await world.elect(None, ElectionType.UNCLEAN) == {KEY: None}
    assert (world.now.leader, world.now.isr) == (2, (2,))


@played
async def test_unclean_elections_are_allowed_for_a_topic_while_the_brokers_run(world: Brokers) -> None:
    """M10."""
    await world.create((1, 2))
    world.lagging = {2}
    world.kill_broker(2)
    await world.until(lambda: world.now.isr == (1,))
    await world.start(2)
    world.kill_broker(1)
    await world.until(lambda: not world.now.has_leader)
    await world.write("/config/topics/t", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
    await world.until(lambda: world.now.leader == 2)
    assert world.now.isr == (2,)


def test_leaders_go_back_by_themselves_when_brokers_lead_too_little(play):
    """M10: `auto.leader.rebalance.enable`, looked after every so many seconds."""

    async def scenario(world: Brokers) -> None:
        await world.create((1, 2), (1, 2), (2, 1))
        world.kill_broker(1)
        await world.until(lambda: world.now.leader == 2)
        await world.start(1)
        await world.until(lambda: 1 in world.now.isr)
        began = asyncio.get_running_loop().time()
        await world.until(lambda: world.now.leader == 1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1), "as the controller is new"
        await world.elect([KEY])
        world.kill_broker(1)
        await world.until(lambda: world.now.leader == 2)
        await world.start(1)
        began = asyncio.get_running_loop().time()
        await world.until(lambda: world.now.leader == 1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(100, abs=0.1)
        leaders = [each.leader for each in world.controller.image.topics["t"].partitions.values()]
        assert leaders == [1, 1, 2]

    config = BrokerConfig(leader_imbalance_check_interval_seconds=100)
    play(scenario, config=config)


@pytest.mark.parametrize("config", [{"auto_leader_rebalance_enable": False}, {"percentage": 60}])
def test_leaders_stay_where_that_is_off_or_a_little_imbalance_is_allowed(play, config):
    async def scenario(world: Brokers) -> None:
        await world.create((1, 2), (1, 2), (1, 2))
        world.kill_broker(1)
        await world.until(lambda: world.now.leader == 2)
        await world.start(1)
        await world.until(lambda: all(1 in each.isr for each in world.controller.image.topics["t"].partitions.values()))
        await world.elect([TopicPartition("t", 1), TopicPartition("t", 2)])
        await asyncio.sleep(250)
        assert world.now.leader == 2

    made = replace(CONFIG, leader_imbalance_check_interval_seconds=100)
    if "percentage" in config:
        made = replace(made, auto_leader_rebalance_enable=True, leader_imbalance_per_broker_percentage=60)
    play(scenario, config=made)


@played
async def test_only_the_controller_does_it(world: Brokers) -> None:
    await world.create((1, 2))
    broker = next(each for each in world.brokers.values() if not each.is_controller)
    with pytest.raises(KafkaError) as error:
        await broker.do(lambda controller: controller.change_states([]))
    assert error.value.code is ErrorCode.not_controller


@played
async def test_a_change_of_the_tree_by_a_tool_is_reported_and_the_next_request_is_done(world: Brokers) -> None:
    """M9: nobody is meant to write states beside the controller, and nothing is lost when somebody does."""
    await world.create((1, 2))
    path = "/brokers/topics/t/partitions/0/state"
    await world.store.set(path, (await world.store.get(path)).data)
    with pytest.raises(KafkaError) as error:
        await world.reassign({KEY: (2, 3)})
    assert error.value.code is ErrorCode.request_timed_out
    assert error.value.retriable
    await by_request(world, 2, 3)
    await world.until_reassigned(2, 3)
