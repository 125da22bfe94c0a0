"""More partitions and other configurations, through a broker: what the tree and the image have then (M10)."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.broker.cluster.config_changes import ConfigChange, write_changes
from odradek.broker.controller import jobs
from odradek.broker.controller.machine.elections import ElectionType, elect_on_demand
from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.broker.turns import HEAVY, TURN
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import ConfigNode
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.stores import MemoryStore
from tests.world.scenes import played


def setting(**keys: str) -> Any:
    """A change that sets these keys and leaves the others."""
    return lambda before: {**before, **{key.replace("_", "."): value for key, value in keys.items()}}


@played
async def test_more_partitions_are_led_when_the_answer_comes(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="t", config={"retention.ms": "5"})])
    topic_id = broker.image.topics["t"].topic_id
    assert await broker.create_partitions([NewPartitions(topic="t", count=4)]) == [None]
    topic = broker.image.topics["t"]
    assert {number: (each.leader, each.leader_epoch) for number, each in topic.partitions.items()} == dict.fromkeys(
        range(4), (0, 0)
    )
    assert (topic.topic_id, topic.config) == (topic_id, {"retention.ms": "5"})
    assert (await world.value("/brokers/topics/t"))["partitions"] == {str(number): [0] for number in range(4)}
    await broker.stop()


@played
async def test_each_topic_gets_its_partitions_or_an_error_and_a_validation_changes_nothing(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a"), NewTopic(name="b")])
    wanted = [
        NewPartitions(topic="a", count=3, assignment=[(0,)]),
        NewPartitions(topic="b", count=1),
        NewPartitions(topic="gone", count=3),
    ]
    expected = [None, ErrorCode.invalid_partitions, ErrorCode.unknown_topic_or_partition]
    before = broker.image
    for validate_only in (True, False):
        results = await broker.create_partitions(wanted, validate_only=validate_only)
        assert [None if error is None else error.code for error in results] == expected
        assert (broker.image is before) == validate_only
    assert [len(broker.image.topics[name].partitions) for name in "ab"] == [3, 2]
    await broker.stop()


@played
async def test_only_the_controller_adds_partitions(world) -> None:
    first, second = await world.started(0), await world.started(1)
    await first.create_topics([NewTopic(name="t")])
    await world.until(lambda: "t" in second.image.topics)
    with pytest.raises(KafkaError) as raised:
        await second.create_partitions([NewPartitions(topic="t", count=3)])
    assert raised.value.code is ErrorCode.not_controller
    await first.create_partitions([NewPartitions(topic="t", count=6)])
    await world.until(lambda: len(second.image.topics["t"].partitions) == 6)
    await world.until(lambda: all(each.has_leader for each in second.image.topics["t"].partitions.values()))
    await second.stop()
    await first.stop()


@played
async def test_any_broker_changes_a_configuration_of_all(world) -> None:
    first, second = await world.started(0), await world.started(1)
    await first.create_topics([NewTopic(name="t", config={"retention.ms": "5"})])
    await world.until(lambda: "t" in second.image.topics)
    changes = [
        ConfigChange(topic="t", change=setting(segment_ms="7")),
        ConfigChange(broker_id=0, change=setting(log_roll_ms="8")),
        ConfigChange(change=setting(log_roll_ms="9")),
    ]
    assert await second.change_configs(changes) == [None] * 3
    for broker in (second, first):
        await world.until(lambda broker=broker: broker.image.broker_configs)
        assert broker.image.topics["t"].config == {"retention.ms": "5", "segment.ms": "7"}
        assert broker.image.broker_configs == {None: {"log.roll.ms": "9"}, 0: {"log.roll.ms": "8"}}
    assert await world.value("/config/topics/t") == {
        "version": 1,
        "config": {"retention.ms": "5", "segment.ms": "7"},
    }
    assert await world.value("/config/brokers/<default>") == {"version": 1, "config": {"log.roll.ms": "9"}}
    assert await world.store.children("/config/changes") == []
    await second.stop()
    await first.stop()


@played
async def test_a_change_that_is_refused_does_not_stop_the_others(world) -> None:
    def refuse(_: Mapping[str, str]) -> Mapping[str, str]:
        raise KafkaError(ErrorCode.invalid_config, "no")

    broker = await world.started()
    await broker.create_topics([NewTopic(name="t")])
    changes = [
        ConfigChange(topic="t", change=refuse),
        ConfigChange(topic="gone", change=setting(segment_ms="7")),
        ConfigChange(topic="t", change=setting(segment_ms="7")),
    ]
    results = await broker.change_configs(changes)
    assert [None if error is None else error.code for error in results] == [
        ErrorCode.invalid_config,
        ErrorCode.unknown_topic_or_partition,
        None,
    ]
    assert broker.image.topics["t"].config == {"segment.ms": "7"}
    assert await world.store.get("/config/topics/gone") is None
    await broker.stop()


@played
async def test_of_two_changes_at_the_same_moment_none_is_lost(world) -> None:
    class Interrupted(MemoryStore):
        """A session in whose way somebody comes, between its reading and its writing."""

        times = 0
        other: MemoryStore

        async def multi(self, operations: Any) -> Any:
            if self.times:
                self.times -= 1
                node = await self.get("/config/brokers/0")
                before = {} if node is None else json.loads(node.data)["config"]
                data = ConfigNode(config={**before, f"other.{self.times}": "1"}).encode()
                await (self.other.create if node is None else self.other.set)("/config/brokers/0", data)
            return await super().multi(operations)

    for path in paths.PERSISTENT_ROOTS:
        await world.store.create(path)
    store = Interrupted(world.tree)
    store.times, store.other = 2, world.store
    assert await write_changes(store, [ConfigChange(broker_id=0, change=setting(log_roll_ms="1"))]) == [None]
    config = (await world.value("/config/brokers/0"))["config"]
    assert config == {"other.1": "1", "other.0": "1", "log.roll.ms": "1"}
    store.times = 100
    [error] = await write_changes(store, [ConfigChange(broker_id=0, change=setting(log_roll_ms="2"))])
    assert error.code is ErrorCode.request_timed_out


@played
async def test_many_changes_are_computed_in_turns_if_the_tree_answers_at_once(world) -> None:
    computed, most = 0, 0

    class AtOnce(MemoryStore):
        async def get(self, path):  # type: ignore[no-untyped-def]
            return None

    def change(_: Mapping[str, str]) -> Mapping[str, str]:
        nonlocal computed, most
        if not computed:
            asyncio.get_running_loop().call_soon(begin)
        computed += 1
        most = max(most, computed)
        return {}

    def begin() -> None:
        nonlocal computed
        computed = 0

    changes = [ConfigChange(user=f"u{number}", change=change) for number in range(200)]
    assert await write_changes(AtOnce(world.tree), changes) == [None] * 200
    assert most <= TURN // HEAVY


@played
async def test_many_elections_are_decided_in_turns(world, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await world.started()
    decided, most = 0, 0

    def elect(image, keys, *others):  # type: ignore[no-untyped-def]
        nonlocal decided, most
        if not decided:
            asyncio.get_running_loop().call_soon(begin)
        decided += len(keys)
        most = max(most, decided)
        return elect_on_demand(image, keys, *others)

    def begin() -> None:
        nonlocal decided
        decided = 0

    monkeypatch.setattr(jobs, "elect_on_demand", elect)
    wanted = [TopicPartition("unknown", number) for number in range(5000)]
    answers = await broker.do(lambda epoch: jobs.elect_leaders(epoch, wanted, ElectionType.PREFERRED))
    assert {error.code for error in answers.values()} == {ErrorCode.unknown_topic_or_partition}
    assert (len(answers), most <= TURN) == (5000, True)
    await broker.stop()


@played
async def test_a_broken_node_is_written_anew_and_an_equal_one_is_left_alone(world) -> None:
    for path in paths.PERSISTENT_ROOTS:
        await world.store.create(path)
    await world.store.create("/config/brokers/0", b"not JSON")
    change = ConfigChange(broker_id=0, change=setting(log_roll_ms="1"))
    for _ in range(2):
        assert await write_changes(world.store, [change]) == [None]
        node = await world.store.get("/config/brokers/0")
        assert (json.loads(node.data)["config"], node.version) == ({"log.roll.ms": "1"}, 1)


@played
async def test_leaders_are_elected_when_an_unclean_election_is_allowed_while_the_controller_runs(world) -> None:
    """M1: off by default, and records may be lost where it is on."""
    first, second = await world.started(0), await world.started(1)
    await first.create_topics([NewTopic(name="t", assignment={0: (1, 0)})])
    state = await world.value("/brokers/topics/t/partitions/0/state")
    await world.store.set("/brokers/topics/t/partitions/0/state", json.dumps(state | {"isr": [1]}).encode())
    first.view.watcher.mark(topics=["t"])
    world.kill(second)
    await world.until(lambda: not first.image.topics["t"].partitions[0].has_leader)
    await asyncio.sleep(1)
    assert not first.image.topics["t"].partitions[0].has_leader
    first.update_config(BrokerConfig(unclean_leader_election_enable=True))
    await first.change_configs([])
    assert first.image.topics["t"].partitions[0].leader == 0
    assert first.counters.unclean_elections == 1
    await first.stop()
