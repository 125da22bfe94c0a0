"""Committed offsets over the wire, and how they are forgotten, on virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinators.machine import Producer
from odradek.broker.groups.machine.messages import CommitRequest, FetchOffsetsRequest
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from tests.world.scenes import played

Play = Callable[..., None]


def commit_message(offsets: dict[int, int], *, topic: str = "t", group: str = "g", **more: Any) -> dict[str, Any]:
    partitions = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": None}
        for number, offset in offsets.items()
    ]
    return {"group_id": group, "member_id": "", "topics": [{"name": topic, "partitions": partitions}]} | more


async def commit(client: Any, offsets: dict[int, int], version: int = 9, **more: Any) -> list[ErrorCode]:
    answer = await client.ask(ApiKey.OFFSET_COMMIT, commit_message(offsets, **more), version)
    return [each.error_code for each in answer.topics[0].partitions]


async def fetch(client: Any, *groups: str, version: int = 9, stable: bool = False) -> dict[str, dict[Any, int]]:
    """All offsets, by group, of `topic-partition`."""
    message = {"groups": [{"group_id": group, "topics": None} for group in groups], "require_stable": stable}
    answer = await client.ask(ApiKey.OFFSET_FETCH, message, version)
    assert all(group.error_code == ErrorCode.none for group in answer.groups)
    return {
        group.group_id: {
            f"{topic.name}-{each.partition_index}": each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }
        for group in answer.groups
    }


async def ready(world: Any) -> Any:
    """A topic `t`, a topic `u`, and a client that knows that its groups have a coordinator."""
    await world.create_topic("t", 3)
    await world.create_topic("u", 1)
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    return client


@played
async def test_a_consumer_without_membership_commits_while_the_group_is_empty(world: Any) -> None:
    """M8."""
    client = await ready(world)
    assert await commit(client, {0: 5, 2: 7}) == [ErrorCode.none] * 2
    assert await commit(client, {0: 6}, topic="u") == [ErrorCode.none]
    assert await commit(client, {0: 8}) == [ErrorCode.none]
    assert await fetch(client, "g", "never heard of") == {
        "g": {"t-0": 8, "t-2": 7, "u-0": 6},
        "never heard of": {},
    }
    listed = await client.ask(ApiKey.LIST_GROUPS, {})
    assert [(each.group_id, each.protocol_type, each.group_state) for each in listed.groups] == [("g", "", "Empty")]
    message = {
        "group_id": "g",
        "session_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = await client.ask(ApiKey.JOIN_GROUP, message, 0)
    assert joined.generation_id == 1
    assert await commit(client, {0: 9}) == [ErrorCode.unknown_member_id]
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert await commit(client, {0: 9}, **member) == [ErrorCode.rebalance_in_progress]
    sync = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "assignments": []}
    await client.ask(ApiKey.SYNC_GROUP, sync, 0)
    assert await commit(client, {0: 9}, **member | {"generation_id_or_member_epoch": 0}) == [
        ErrorCode.illegal_generation
    ]
    assert await commit(client, {0: 9}, **member) == [ErrorCode.none]
    assert (await fetch(client, "g"))["g"]["t-0"] == 9


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)])
@played
async def test_a_member_of_an_unknown_group_cannot_commit(world: Any, version: int, error: ErrorCode) -> None:
    """M8."""
    client = await ready(world)
    member = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert await commit(client, {0: 1}, version, **member) == [error]


@played(offset_metadata_max_bytes="10")
async def test_errors_are_per_partition_and_the_other_partitions_are_committed(world: Any) -> None:
    """M8."""
    client = await ready(world)
    message = commit_message({0: 1, 9: 1, 1: 1})
    message["topics"][0]["partitions"][2]["committed_metadata"] = "x" * 11
    message["topics"].append({"name": "gone", "partitions": message["topics"][0]["partitions"][:1]})
    answer = await client.ask(ApiKey.OFFSET_COMMIT, message, 9)
    errors = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    assert errors == {
        ("t", 0): ErrorCode.none,
        ("t", 9): ErrorCode.unknown_topic_or_partition,
        ("t", 1): ErrorCode.offset_metadata_too_large,
        ("gone", 0): ErrorCode.unknown_topic_or_partition,
    }
    assert await fetch(client, "g") == {"g": {"t-0": 1}}


@played
async def test_topics_by_id_are_found_or_unknown(world: Any) -> None:
    """M8. OffsetCommit and OffsetFetch 10."""
    client = await ready(world)
    topic_id = world.broker.image.topics["t"].topic_id
    other_id = world.simulation.entropy("ids").randbytes(16)
    other_id = type(topic_id)(bytes=other_id)
    message = commit_message({1: 4})
    message["topics"][0]["topic_id"] = topic_id
    message["topics"].append(message["topics"][0] | {"topic_id": other_id})
    answer = await client.ask(ApiKey.OFFSET_COMMIT, message)
    errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    assert errors == {topic_id: ErrorCode.none, other_id: ErrorCode.unknown_topic_id}
    topics = [{"topic_id": each, "partition_indexes": [1]} for each in (topic_id, other_id)]
    groups = [{"group_id": "g", "topics": topics}, {"group_id": "g", "topics": None}]
    some, every = (await client.ask(ApiKey.OFFSET_FETCH, {"groups": groups})).groups
    found = {
        topic.topic_id: (topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in some.topics
    }
    assert found == {topic_id: (4, ErrorCode.none), other_id: (-1, ErrorCode.unknown_topic_id)}
    assert [topic.topic_id for topic in every.topics] == [topic_id]


@played
async def test_a_fetch_that_requires_stable_offsets_waits_for_pending_writes(world: Any) -> None:
    """M8. KIP-447."""
    client, other = await ready(world), await world.client("other")
    assert await commit(client, {0: 1}) == [ErrorCode.none]
    groups = world.broker.groups
    value = OffsetCommitValue(offset=1, commit_timestamp=0)
    writing = groups.submit("g", CommitRequest(values={TopicPartition("t", 0): value}))
    fetching = groups.submit("g", FetchOffsetsRequest(require_stable=True))
    assert not fetching.done()
    fetched = await fetching
    assert {key: each.offset for key, each in fetched.values.items()} == {TopicPartition("t", 0): 1}
    assert writing.done()
    committing = asyncio.ensure_future(commit(client, {0: 2}))
    assert (await fetch(other, "g", stable=True))["g"]["t-0"] in {1, 2}
    await committing
    assert (await fetch(other, "g", stable=True))["g"]["t-0"] == 2


@pytest.mark.parametrize("is_commit", [True, False])
@played
async def test_a_marker_makes_the_offsets_of_its_transaction_valid_or_drops_them_at_once(
    world: Any, is_commit: bool
) -> None:
    """M8. KIP-447."""
    client = await ready(world)
    groups, key = world.broker.groups, TopicPartition("t", 0)
    assert await commit(client, {0: 1}) == [ErrorCode.none]
    for epoch, restarts in enumerate((False, True)):
        value = OffsetCommitValue(offset=10 + epoch, commit_timestamp=0)
        producer = Producer(producer_id=7, epoch=epoch)
        led = groups.context("g").partition
        led.log.producers.begin_verification(7, epoch, 0).is_verified = True
        assert await groups.submit("g", CommitRequest(values={key: value}, producer=producer)) is ErrorCode.none
        assert (await fetch(client, "g"))["g"]["t-0"] == (10 if epoch and is_commit else 1)
        unstable = await groups.submit("g", FetchOffsetsRequest(require_stable=True))
        assert unstable.unstable == {key}
        if restarts:
            await world.restart()
            client, groups = await world.client("later"), world.broker.groups
            await world.pass_time(1)
            assert (await groups.submit("g", FetchOffsetsRequest(require_stable=True))).unstable == {key}
        number = coordinator_partition("g", len(world.broker.image.topics[OFFSETS_TOPIC].partitions))
        marker = {
            "producer_id": 7,
            "producer_epoch": epoch,
            "transaction_result": is_commit,
            "topics": [{"name": OFFSETS_TOPIC, "partition_indexes": [number]}],
            "coordinator_epoch": 0,
        }
        written = await client.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, 1)
        assert written.markers[0].topics[0].partitions[0].error_code == ErrorCode.none
        fetched = await groups.submit("g", FetchOffsetsRequest(require_stable=True))
        assert (fetched.values[key].offset, fetched.unstable) == (10 + epoch if is_commit else 1, frozenset())


@pytest.mark.parametrize("version", [1, 2, 8])
@played
async def test_offsets_of_another_brokers_group_get_not_coordinator(world: Any, version: int) -> None:
    """M8. Version 1 has a place for the error only at each partition."""
    await world.create_topic("t", 3)
    client = await world.client()
    topics = [{"name": "t", "partition_indexes": [0]}]
    message = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
    answer = await client.ask(ApiKey.OFFSET_FETCH, message, version)
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == ErrorCode.not_coordinator
    else:
        group = answer.groups[0] if version == 8 else answer
        assert group.error_code == ErrorCode.not_coordinator
    assert await commit(client, {0: 1}) == [ErrorCode.not_coordinator]


@played(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_offsets_of_an_unused_group_expire_and_then_the_group(world: Any) -> None:
    """M8. KIP-211."""
    client = await ready(world)
    await commit(client, {0: 1})
    await world.pass_time(40)
    await commit(client, {1: 1})
    await world.pass_time(40)
    assert await fetch(client, "g") == {"g": {"t-1": 1}}
    await world.pass_time(40)
    assert await fetch(client, "g") == {"g": {}}
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).groups == ()
    await world.restart()
    client = await world.client("later")
    assert await fetch(client, "g") == {"g": {}}
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).groups == ()


@played(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
async def test_offsets_expire_only_after_the_last_member_has_left(world: Any) -> None:
    """M8. KIP-211."""
    from odradek.protocol.consumer_protocol import Subscription, encode_subscription

    client = await ready(world)
    await commit(client, {0: 1}, topic="u")
    subscription = encode_subscription(Subscription(topics=("t",)))
    message = {
        "group_id": "g",
        "session_timeout": 600_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription}],
    }
    joined = await client.ask(ApiKey.JOIN_GROUP, message, 0)
    assignments = [{"member_id": joined.member_id, "assignment": b"x"}]
    sync = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "assignments": assignments}
    await client.ask(ApiKey.SYNC_GROUP, sync, 0)
    await commit(client, {0: 1}, member_id=joined.member_id, generation_id_or_member_epoch=1)
    await world.pass_time(200)
    assert await fetch(client, "g") == {"g": {"t-0": 1}}, "the topic u is not subscribed"
    await client.ask(ApiKey.LEAVE_GROUP, {"group_id": "g", "member_id": joined.member_id}, 0)
    await world.pass_time(50)
    assert await fetch(client, "g") == {"g": {"t-0": 1}}
    await world.pass_time(20)
    assert await fetch(client, "g") == {"g": {}}
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).groups == ()


@played(offsets_retention_check_interval_ms="1000")
async def test_an_old_client_may_set_a_retention_time(world: Any) -> None:
    """M8. OffsetCommit 2 to 4."""
    client = await ready(world)
    await commit(client, {0: 1}, 4, retention_time=5_000)
    await commit(client, {1: 1}, 4, retention_time=-1)
    await world.restart()
    client = await world.client("later")
    await world.pass_time(8)
    assert await fetch(client, "g") == {"g": {"t-1": 1}}


@played
async def test_offsets_of_a_deleted_topic_are_removed_even_if_it_is_recreated_at_once(world: Any) -> None:
    """M8."""
    client = await ready(world)
    await commit(client, {0: 1})
    await commit(client, {0: 2}, topic="u")
    await world.broker.controller.delete_topics(["t"])
    await world.broker.create_topics([NewTopic(name="t", num_partitions=3)])
    assert await fetch(client, "g") == {"g": {"u-0": 2}}
    await world.restart()
    client = await world.client("later")
    assert await fetch(client, "g") == {"g": {"u-0": 2}}
