"""The controller commands the other brokers: what they hear, believe and refuse (M1, M9)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from odradek.broker.cluster.metadata.image_updates import EPOCH_DURING_DELETE
from odradek.broker.controller.machine.reassignment import StopReplicas
from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.broker.replication.alter_partition_manager import IsrResult
from odradek.metadata import paths
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import Node, NoNode, Operation, Result
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import CONTROLLER_VERSIONS, ApiKey
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.stores import MemoryStore, MemoryTree
from tests.world.scenes import played

THREE = NewTopic(name="t", assignment={number: ((number + 1) % 3, (number + 2) % 3) for number in range(6)})


def partitions(broker: Any) -> Any:
    """Return the topics that a broker knows; the controller and the other brokers must know the same."""
    return {(name, topic.topic_id): topic.partitions for name, topic in broker.image.topics.items()}


class CountedStore(MemoryStore):
    """Notes the paths that are read."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.read: list[str] = []

    async def get(self, path: str) -> Any:
        self.read.append(path)
        return await super().get(path)

    async def get_many(self, paths: Iterable[str]) -> Any:
        wanted = list(paths)
        self.read += wanted
        return await super().get_many(wanted)

    async def children(self, path: str) -> Any:
        self.read.append(path)
        return await super().children(path)


async def three(world: Any, **more: Any) -> list[Any]:
    """Brokers 0, the controller, 1 and 2, with the topic `t`."""
    brokers = [await world.started(number, **more) for number in range(3)]
    await world.until(lambda: all(len(broker.image.brokers) == 3 for broker in brokers))
    await brokers[0].create_topics([THREE])
    await world.until(lambda: agreed(brokers))
    return brokers


def agreed(brokers: list[Any]) -> bool:
    first = brokers[0]
    return all(
        partitions(each) == partitions(first) and set(each.image.brokers) == set(first.image.brokers)
        for each in brokers
    )


async def stop(*brokers: Any) -> None:
    for broker in reversed(brokers):
        await broker.stop()


def command(broker: Any, **more: Any) -> Any:
    """A command as it arrives at `broker`, from its controller unless `more` says otherwise."""
    body = {
        "controller_id": broker.image.controller_id,
        "controller_epoch": broker.image.controller_epoch,
        "broker_epoch": broker.broker_epoch,
        "is_full": False,
        "topic_states": [],
        "live_brokers": [
            {"id": each.broker_id, "rack": None, "epoch": each.epoch, "endpoints": [
                {"port": there.port, "host": there.host, "listener": there.name} for there in each.endpoints
            ]}
            for each in broker.image.brokers.values()
        ],
        "stops": [],
    }  # fmt: skip
    version = CONTROLLER_VERSIONS[ApiKey.UPDATE_METADATA]
    return decode_request(
        ApiKey.UPDATE_METADATA, version, encode_request(ApiKey.UPDATE_METADATA, version, {**body, **more})
    )


async def answer(broker: Any, **more: Any) -> ErrorCode:
    """Return the error of the broker's response to a command that stops all its replicas."""
    stops = [
        {"topic_name": "t", "partition_index": number, "leader_epoch": EPOCH_DURING_DELETE, "delete_partition": True}
        for number in range(6)
    ]
    response = await broker.command_handler.update_metadata(command(broker, stops=stops, **more))
    error = response.get("error_code", ErrorCode.none)
    assert error is ErrorCode.none or not broker.replicas.stopped
    return error


@played
async def test_an_older_controller_is_refused_and_so_is_one_that_the_tree_does_not_name(world) -> None:
    """M1: brokers refuse an older epoch."""
    brokers = await three(world)
    await world.store.delete("/controller")
    await world.until(lambda: all(each.image.controller_epoch == 2 for each in brokers))
    member = next(each for each in brokers if not each.is_controller)
    assert await answer(member, controller_epoch=1) is ErrorCode.stale_controller_epoch
    assert await answer(member, controller_epoch=3) is ErrorCode.stale_controller_epoch
    assert await answer(member, controller_id=member.broker_id) is ErrorCode.stale_controller_epoch
    assert await answer(member, controller_id=9) is ErrorCode.stale_controller_epoch
    await stop(*brokers)


@played
async def test_a_command_to_another_registration_is_refused(world) -> None:
    """M1."""
    brokers = await three(world)
    before = partitions(brokers[1])
    for epoch in (-1, 0, brokers[1].broker_epoch - 1, brokers[1].broker_epoch + 1, brokers[2].broker_epoch):
        assert await answer(brokers[1], broker_epoch=epoch, is_full=True) is ErrorCode.stale_broker_epoch
    assert partitions(brokers[1]) == before
    await stop(*brokers)


@played
async def test_the_controller_refuses_commands_of_other_brokers(world) -> None:
    brokers = await three(world)
    assert await answer(brokers[0]) is ErrorCode.stale_controller_epoch
    await stop(*brokers)


@played
async def test_a_broker_s_death_is_one_or_two_commands_to_each_that_lives(world) -> None:
    """M9: however many partitions change hands."""
    brokers = await three(world)
    await brokers[0].create_topics(
        [NewTopic(name=f"t{number}", num_partitions=40, replication_factor=3) for number in range(5)]
    )
    await world.until(lambda: agreed(brokers))
    heard = brokers[1].listener.received
    heard.clear()
    world.kill(brokers[2])
    await world.until(lambda: agreed(brokers[:2]) and 2 not in brokers[1].image.brokers)
    assert all(each.leader != 2 for topic in brokers[1].image.topics.values() for each in topic.partitions.values())
    # Who is alive may be told before the leaders are elected.
    assert set(heard) == {ApiKey.UPDATE_METADATA}
    assert len(heard) <= 2
    await stop(*brokers[:2])


@played
async def test_a_broker_that_registers_again_gets_the_full_state(world) -> None:
    brokers = await three(world)
    epoch = brokers[1].broker_epoch
    for _ in range(2):
        brokers[1].listener.received.clear()
        world.tree.expire(brokers[1].store.session_id)
        await world.until(
            lambda epoch=epoch: brokers[1].broker_epoch > epoch and brokers[1].command_handler.is_initialized
        )
        epoch = brokers[1].broker_epoch
        assert brokers[0].image.brokers[1].epoch == epoch
        await world.until(lambda: agreed(brokers))
        assert ApiKey.UPDATE_METADATA in brokers[1].listener.received
    assert brokers[2].image.brokers[1].epoch == epoch, "leaders know their followers' fetches by it"
    await stop(*brokers)


@played
async def test_an_unreachable_broker_gets_the_last_state_when_it_is_reachable(world) -> None:
    """M9. And nobody else waits for it."""
    brokers = await three(world)
    network = world.simulation.network
    network.partition(["broker-0"], ["broker-1"])
    for number in range(4):
        await brokers[0].create_topics([NewTopic(name=f"late{number}", num_partitions=2, replication_factor=3)])
    await brokers[0].create_partitions([NewPartitions(topic="late0", count=5)])
    await world.until(lambda: agreed([brokers[0], brokers[2]]))
    assert "late0" not in brokers[1].image.topics
    brokers[1].listener.received.clear()
    network.heal()
    await world.until(lambda: agreed(brokers))
    assert len(brokers[1].listener.received) <= 2, "what waited is told at once"
    await stop(*brokers)


@played
async def test_commands_that_are_repeated_change_nothing_and_late_ones_are_passed_over(world) -> None:
    brokers = await three(world)
    member, key = brokers[1], TopicPartition("t", 0)
    known = member.image.partition(key)
    state = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 2,
        "leader_epoch": known.leader_epoch,
        "isr": [2],
        "partition_epoch": known.state_version,
        "replicas": list(known.replicas),
        "adding_replicas": [],
        "removing_replicas": [],
    }
    topic = {"topic_name": "t", "topic_id": member.image.topics["t"].topic_id}
    for older in ({"partition_epoch": known.state_version - 1}, {"leader_epoch": -1}):
        states = [{**topic, "partition_states": [{**state, **older}]}]
        response = await member.command_handler.update_metadata(command(member, topic_states=states))
        assert response == {"partition_errors": []}
        assert member.image.partition(key) == known
    states = [{**topic, "partition_states": [{**state, "leader_epoch": known.leader_epoch + 1}]}]
    for _ in range(2):
        await member.command_handler.update_metadata(command(member, topic_states=states))
        assert member.image.partition(key).leader == 2
    await stop(*brokers)


@played
async def test_a_command_whose_sender_is_deposed_while_configurations_are_read_changes_nothing(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = await three(world)
    member = brokers[1]
    view, read = member.command_handler._view, member.command_handler._view.broker_watcher.read_configs

    async def read_late(names: Any) -> None:
        await read(names)
        view.publish(replace(view.image, controller_id=2, controller_epoch=view.image.controller_epoch + 1))

    monkeypatch.setattr(view.broker_watcher, "read_configs", read_late)
    state = {
        "partition_index": 0, "controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1], "partition_epoch": 0,
        "replicas": [1], "adding_replicas": [], "removing_replicas": [],
    }  # fmt: skip
    states = [{"topic_name": "late", "topic_id": UUID(int=7), "partition_states": [state]}]
    response = await member.command_handler.update_metadata(command(member, topic_states=states))
    assert response["error_code"] == ErrorCode.stale_controller_epoch
    assert "late" not in member.image.topics
    monkeypatch.undo()
    await stop(*brokers)


@played
async def test_a_replica_is_stopped_after_the_update_unless_its_leader_epoch_is_newer(world) -> None:
    """KIP-570."""
    brokers = await three(world)
    member, key = brokers[1], TopicPartition("t", 0)
    known = member.image.partition(key)
    state = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 2,
        "leader_epoch": known.leader_epoch + 1,
        "isr": [2],
        "partition_epoch": known.state_version + 1,
        "replicas": list(known.replicas),
        "adding_replicas": [],
        "removing_replicas": [],
    }
    topic = {"topic_name": "t", "topic_id": member.image.topics["t"].topic_id, "partition_states": [state]}
    for leader_epoch, expected in ((known.leader_epoch, []), (known.leader_epoch + 1, [(key, True)])):
        wanted = {"topic_name": "t", "partition_index": 0, "leader_epoch": leader_epoch, "delete_partition": True}
        await member.command_handler.update_metadata(command(member, topic_states=[topic], stops=[wanted]))
        assert member.replicas.stopped == expected
        assert (member.broker_id in member.image.partition(key).replicas) is not bool(expected)
    await stop(*brokers)


@played
async def test_many_replicas_are_stopped_in_turns_and_the_response_waits_for_the_disk(world) -> None:
    brokers = await three(world)
    member, count = brokers[1], 200
    stop_one = {"topic_name": "t", "leader_epoch": EPOCH_DURING_DELETE, "delete_partition": True}
    stops = [{**stop_one, "partition_index": number} for number in range(count)]
    handling = asyncio.ensure_future(member.command_handler.update_metadata(command(member, stops=stops)))
    seen = set()
    while not handling.done():
        await asyncio.sleep(0)
        seen.add(len(member.replicas.stopped))
    assert max(after - before for before, after in pairwise(sorted(seen))) <= count // 4
    assert member.replicas.synced == count
    await stop(*brokers)


@played
async def test_only_the_controller_reads_of_topics_and_a_new_one_reads_the_tree_once(world) -> None:
    """M1: a controller change reads the tree once, not once per broker."""
    brokers = [await world.started(number, store=CountedStore(world.tree)) for number in range(3)]
    await world.until(lambda: all(len(broker.image.brokers) == 3 for broker in brokers))
    for broker in brokers:
        broker.store.read.clear()
    await brokers[0].create_topics(
        [NewTopic(name=f"t{number}", num_partitions=4, replication_factor=2) for number in range(20)]
    )
    await world.until(lambda: agreed(brokers))
    for broker in brokers[1:]:
        assert not [path for path in broker.store.read if path.startswith("/brokers")]
        assert all(count == 1 for count in Counter(broker.store.read).values()), "a configuration is read once"
    for broker in brokers:
        broker.store.read.clear()
    world.kill(brokers[0])
    await world.until(lambda: any(broker.is_controller for broker in brokers[1:]))
    await world.until(lambda: agreed(brokers[1:]) and set(brokers[1].image.brokers) == {1, 2})
    next_one, member = sorted(brokers[1:], key=lambda broker: not broker.is_controller)
    assert not [path for path in member.store.read if path.startswith(("/brokers/topics", "/config/topics"))]
    states = Counter(path for path in next_one.store.read if path.endswith("/state"))
    assert len(states) == 80
    # Once, and once more where it elected a leader.
    assert max(states.values()) <= 2
    assert Counter(next_one.store.read)["/brokers/topics"] <= 2
    await stop(*brokers[1:])


@played
async def test_a_registered_broker_that_does_not_answer_is_a_warning_each_minute(world, caplog) -> None:
    brokers = await three(world)
    world.simulation.network.partition(["broker-0"], ["broker-1"])
    creating = asyncio.create_task(brokers[0].create_topics([NewTopic(name="u")]))
    await world.pass_time(180)
    world.simulation.network.heal()
    await creating
    found = [each for each in caplog.messages if "Failed to send UpdateMetadata to broker 1" in each]
    assert 1 < len(found) <= 4
    assert all("more lines like this one" in each for each in found[1:])
    await stop(*brokers)


@played
async def test_a_topic_is_deleted_when_all_that_live_have_deleted_their_replicas(world) -> None:
    """M1."""
    brokers = await three(world)
    network = world.simulation.network
    network.partition(["broker-0"], ["broker-1"])
    deleting = asyncio.create_task(brokers[0].delete_topics(["t"]))
    await world.pass_time(5)
    assert "t" not in brokers[0].image.topics
    assert await world.everything() != ["/brokers/topics"], "broker 1 has not answered"
    assert not deleting.done()
    network.heal()
    [deletion] = await deleting
    assert deletion.error is None
    assert await world.everything() == ["/brokers/topics"]
    for broker in brokers:
        own = [number for number, replicas in THREE.assignment.items() if broker.broker_id in replicas]
        stopped = {key.partition for key, delete in broker.replicas.stopped if delete}
        assert stopped == set(own)
    await world.until(lambda: all("t" not in broker.image.topics for broker in brokers))
    await stop(*brokers)


@pytest.mark.parametrize("registers_again", [False, True])
@played
async def test_a_broker_that_missed_two_deletions_of_a_name_knows_neither_topic(
    world, *, registers_again: bool
) -> None:
    brokers = await three(world)
    alone = NewTopic(name="alone", assignment={0: (0,)})
    await brokers[0].create_topics([alone])
    await world.until(lambda: agreed(brokers))
    world.simulation.network.partition(["broker-0"], ["broker-1"])
    await brokers[0].delete_topics(["alone"])
    if registers_again:
        epoch = brokers[1].broker_epoch
        world.tree.expire(brokers[1].store.session_id)
        await world.until(lambda: 1 in (known := brokers[0].image.brokers) and known[1].epoch != epoch)
    await brokers[0].create_topics([alone])
    await brokers[0].delete_topics(["alone"])
    await world.pass_time(60)
    assert "alone" in brokers[1].image.topics
    world.simulation.network.heal()
    await world.until(lambda: agreed(brokers))
    await stop(*brokers)


@played
async def test_a_broker_that_is_dead_does_not_hold_up_a_deletion(world) -> None:
    brokers = await three(world)
    network = world.simulation.network
    network.partition(["broker-0"], ["broker-1"])
    deleting = asyncio.create_task(brokers[0].delete_topics(["t"]))
    await world.pass_time(1)
    assert not deleting.done()
    world.kill(brokers[1])
    [deletion] = await deleting
    assert deletion.error is None
    assert await world.everything() == ["/brokers/topics"]
    [again] = await brokers[0].create_topics([NewTopic(name="t", num_partitions=1)])
    assert again.error is None
    await stop(brokers[0], brokers[2])


@played
async def test_a_former_controller_forgets_the_deletions_that_its_successor_finishes(world) -> None:
    brokers = await three(world)
    world.simulation.network.partition(["broker-0"], ["broker-1"])
    deletion = asyncio.create_task(brokers[0].delete_topics(["t"]))
    await world.pass_time(5)
    assert brokers[0].image.deleting == {"t"}
    world.tree.expire(brokers[0].store.session_id)
    with pytest.raises(KafkaError) as failed:
        await deletion
    assert failed.value.code is ErrorCode.not_controller
    world.simulation.network.heal()
    await world.until(lambda: brokers[0].image.controller_id in {1, 2})
    await world.until(lambda: not any("t" in each.image.topics or each.image.deleting for each in brokers))
    assert await world.everything() == ["/brokers/topics"]
    await stop(*brokers)


@played
async def test_a_deletion_that_a_live_broker_does_not_answer_is_late(world) -> None:
    brokers = await three(world)
    world.simulation.network.partition(["broker-0"], ["broker-1"])
    [deletion] = await brokers[0].delete_topics(["t"])
    assert deletion.error.code is ErrorCode.request_timed_out
    world.simulation.network.heal()
    await world.until(lambda: not brokers[0].image.deleting)
    assert await world.everything() == ["/brokers/topics"]
    await stop(*brokers)


@played
async def test_a_stopped_replica_that_gets_a_new_isr_is_stopped_again(world) -> None:
    """It follows again by that, while another one has not answered yet; it would be left behind (M1)."""
    brokers = await three(world)
    channels, key = brokers[0].controller().epoch.channels, TopicPartition("t", 0)
    partition = brokers[0].image.partition(key)
    assert partition.replicas == (1, 2)
    world.simulation.network.partition(["broker-0"], ["broker-1"])
    stops = [StopReplicas(partition=key, brokers=(1, 2), leader_epoch=partition.leader_epoch)]
    stopped = brokers[2].replicas.stopped
    assert not channels.ensure_stopped(stops)
    await world.until(lambda: stopped == [(key, True)])
    request = AlterPartitionItem(
        isr={partition.leader: -1}, leader_epoch=partition.leader_epoch, partition_epoch=partition.state_version
    )
    epoch = brokers[0].image.brokers[partition.leader].epoch
    await brokers[0].alter_partitions(partition.leader, epoch, {key: request})
    await world.until(lambda: 2 in brokers[2].image.partition(key).replicas)
    world.simulation.network.heal()
    while not channels.ensure_stopped(stops):
        await world.pass_time(0.1)
    assert 2 not in brokers[2].image.partition(key).replicas
    assert stopped == [(key, True)] * 2
    await stop(*brokers)


@pytest.mark.parametrize("registers_again", [False, True])
@played
async def test_a_broker_that_is_gone_when_the_isr_is_written_does_not_join_it(world, *, registers_again: bool) -> None:
    """M1. It may have found itself in no ISR, and register with a log that lacks records."""
    brokers = await three(world)
    key, epochs = TopicPartition("t", 0), {each: node.epoch for each, node in brokers[0].image.brokers.items()}
    partition = brokers[0].image.partition(key)
    leader, (joining,) = partition.leader, {*partition.replicas} - {partition.leader}

    async def request(members: tuple[int, ...]) -> IsrResult:
        known = brokers[0].image.partition(key)
        item = AlterPartitionItem(
            isr={each: epochs[each] for each in members},
            leader_epoch=known.leader_epoch,
            partition_epoch=known.state_version,
        )
        return (await brokers[0].alter_partitions(leader, epochs[leader], {key: item}))[key]

    assert (await request((leader,))).isr == (leader,)
    write, read = brokers[0].store.multi, brokers[0].store.get_many

    async def write_late(operations: Sequence[Operation]) -> list[Result]:
        brokers[0].store.multi = write
        world.kill(brokers[joining])
        return await write(operations)

    async def read_late(wanted: Iterable[str]) -> list[Node | None]:
        brokers[0].store.get_many = read
        world.tree.expire(brokers[joining].store.session_id)
        await world.until(lambda: brokers[joining].broker_epoch > epochs[joining])
        return await read(wanted)

    if registers_again:
        brokers[0].store.get_many = read_late
    else:
        brokers[0].store.multi = write_late
    error = await request((leader, joining))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.ineligible_replica
    assert (await world.value(paths.partition_state(key)))["isr"] == [leader]
    await stop(*(each for number, each in enumerate(brokers) if registers_again or number != joining))


@played
async def test_a_write_of_an_isr_that_fails_for_another_node_is_not_repeated_for_ever(world) -> None:
    brokers = await three(world)
    key, known = TopicPartition("t", 0), brokers[0].image.brokers
    partition = brokers[0].image.partition(key)
    item = AlterPartitionItem(
        isr={partition.leader: known[partition.leader].epoch},
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.state_version,
    )
    write = brokers[0].store.multi

    async def lose(_: Sequence[Operation]) -> list[Result]:
        raise NoNode(paths.CONTROLLER_EPOCH)

    brokers[0].store.multi = lose
    with pytest.raises(KafkaError, match="/controller_epoch is gone or was changed"):
        await brokers[0].alter_partitions(partition.leader, known[partition.leader].epoch, {key: item})
    brokers[0].store.multi = write
    await stop(*brokers)


@played
async def test_a_replica_whose_log_cannot_be_used_is_no_leader(world) -> None:
    """M9."""
    brokers = [await world.started(number) for number in range(3)]
    await world.until(lambda: all(len(broker.image.brokers) == 3 for broker in brokers))
    key = TopicPartition("t", 0)
    brokers[1].replicas.errors[key] = ErrorCode.kafka_storage_error
    await brokers[0].create_topics([NewTopic(name="t", assignment={0: (1, 2), 1: (1, 2)})])
    await world.until(lambda: brokers[0].image.partition(key).leader == 2)
    assert brokers[0].image.partition(key).isr == (2,)
    assert brokers[0].image.topics["t"].partitions[1].leader == 1
    await world.until(lambda: agreed(brokers))
    await stop(*brokers)


@played
async def test_the_controller_s_own_log_that_cannot_be_used_is_no_leader_either(world) -> None:
    """M9. When it can be used again, the broker leads again if nobody else does."""
    brokers = [await world.started(number) for number in range(2)]
    await world.until(lambda: all(len(broker.image.brokers) == 2 for broker in brokers))
    one, two = TopicPartition("one", 0), TopicPartition("two", 0)
    brokers[0].replicas.errors.update(dict.fromkeys((one, two), ErrorCode.kafka_storage_error))
    wanted = [NewTopic(name="one", assignment={0: (0,)}), NewTopic(name="two", assignment={0: (0, 1)})]
    await brokers[0].create_topics(wanted)
    await world.until(lambda: [brokers[0].image.partition(key).leader for key in (one, two)] == [-1, 1])
    brokers[0].replicas.errors.clear()
    await brokers[0].create_partitions([NewPartitions(topic="one", count=2, assignment=[(1,)])])
    await world.until(lambda: brokers[0].image.partition(one).leader == 0)
    assert brokers[0].image.partition(two).leader == 1, "nobody takes from others what they lead"
    await stop(*brokers)


@played
async def test_a_broker_that_shuts_down_leads_nothing_new(world) -> None:
    """M9."""
    brokers = await three(world)
    remaining = await brokers[0].shut_down(1, brokers[1].broker_epoch)
    assert remaining == ()
    states = brokers[0].image.topics["t"].partitions.values()
    assert all(each.leader != 1 and 1 not in each.isr for each in states)
    await world.until(lambda: not any(1 in each.replicas for each in brokers[1].image.topics["t"].partitions.values()))
    assert {delete for _, delete in brokers[1].replicas.stopped} == {False}
    with pytest.raises(KafkaError) as error:
        await brokers[0].shut_down(1, brokers[1].broker_epoch - 1)
    assert error.value.code is ErrorCode.stale_broker_epoch
    with pytest.raises(KafkaError) as error:
        await brokers[1].shut_down(1, brokers[1].broker_epoch)
    assert error.value.code is ErrorCode.not_controller
    await stop(*brokers)


@played
async def test_a_starting_broker_waits_for_the_full_state_from_the_controller(world, caplog) -> None:
    brokers = await three(world)
    await brokers[2].stop()
    world.simulation.network.partition(["broker-0"], ["broker-2"])
    starting = asyncio.create_task(world.started(2))
    await world.pass_time(25)
    assert not starting.done()
    assert caplog.text.count("has the full state of the cluster from the controller, broker 0") == 1
    world.simulation.network.heal()
    again = await starting
    assert partitions(again) == partitions(brokers[0])
    await stop(brokers[0], brokers[1], again)
