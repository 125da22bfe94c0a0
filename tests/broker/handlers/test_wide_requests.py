"""Requests that are well-formed and far too wide: what they cost is bounded, and repeating a name earns nothing."""

from typing import Any, Final

import pytest

from odradek.broker.controller.machine.topic_creation import MAX_PARTITIONS
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import request_is_flexible
from odradek.protocol.messages.message_codec import encode_request
from odradek.simulation.world import World
from tests.world.scenes import played

pytestmark = pytest.mark.long

JOIN: Final[dict[str, Any]] = {
    "group_id": "g",
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "reason": None,
}
FLAGS: Final[dict[str, Any]] = {
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@played
async def test_a_request_with_too_many_entries_costs_its_connection_alone(world: World) -> None:
    broker = await world.start(queued_max_request_bytes=20_000_000, socket_request_max_bytes=10_000_000)
    most = broker.config.most_request_entries
    client, other = await world.client(), await world.client()
    wanted = {"topics": [{"name": "t"}] * most, **FLAGS, "allow_auto_topic_creation": False}
    await client.ask(ApiKey.METADATA, wanted, 9)
    with pytest.raises(ConnectionResetError):
        await client.ask(ApiKey.METADATA, wanted | {"topics": [{"name": "t"}] * (most + 1)}, 9)
    assert await other.ask(ApiKey.METADATA, wanted | {"topics": []}, 9)


@played
async def test_a_wide_request_counts_with_its_entries_while_it_is_worked_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a hundred times its bytes: only what it takes in memory can say how many others may be in flight."""
    names = [str(number) for number in range(3000)]
    broker = await world.start(queued_max_request_bytes=4_000_000, socket_request_max_bytes=1_000_000)
    client = await world.client()
    seen, submit = [0], broker.groups.submit

    def submit_and_see(group_id: str, request: Any) -> Any:
        seen.append(broker.server.unanswered_bytes)
        return submit(group_id, request)

    monkeypatch.setattr(broker.groups, "submit", submit_and_see)
    for wanted, least, most in ((names, 3_000_000, 4_000_000), (names[:10], 1, 1000)):
        seen.clear()
        assert len((await client.ask(ApiKey.DELETE_GROUPS, {"groups_names": wanted}, 2)).results) == len(wanted)
        assert least < max(seen) < most
    assert broker.server.unanswered_bytes == 0


@played
async def test_repeated_items_of_a_request_are_answered_once(world: World) -> None:
    many = 1000
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    requests: dict[tuple[ApiKey, int], tuple[dict[str, Any], str]] = {
        (ApiKey.METADATA, 9): ({"topics": [{"name": "t"}] * many, **FLAGS}, "topics"),
        (ApiKey.DESCRIBE_CONFIGS, 4): (
            {"resources": [resource] * many, "include_synonyms": True, "include_documentation": True},
            "results",
        ),
        (ApiKey.DESCRIBE_GROUPS, 5): ({"groups": ["g"] * many, "include_authorized_operations": False}, "groups"),
        (ApiKey.OFFSET_FETCH, 8): (
            {"groups": [{"group_id": "g", "topics": None}] * many, "require_stable": False},
            "groups",
        ),
        (ApiKey.DESCRIBE_PRODUCERS, 0): ({"topics": [{"name": "t", "partition_indexes": [0] * many}] * 2}, "topics"),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0): ({"transactional_ids": ["x"] * many}, "transaction_states"),
    }
    await world.start(offsets_topic_num_partitions=1)
    client = await world.client()
    await client.create_topic("t")
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    for (api, version), (message, field) in requests.items():
        answer = await client.ask(api, message, version)
        assert answer is not None, api.name
        assert len(getattr(answer, field)) == 1, api.name


@played
async def test_names_that_come_twice_are_found_in_time(world: World) -> None:
    """Comparing each with each would take minutes here."""
    names = [f"t{number}" for number in range(15_000)]
    partitions = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in range(15_000)]
    topic = {"num_partitions": 0, "replication_factor": 1, "assignments": [], "configs": []}
    requests: dict[tuple[ApiKey, int], dict[str, Any]] = {
        (ApiKey.DELETE_TOPICS, 5): {"topic_names": [*names, "t1"], "timeout": 1000},
        (ApiKey.LIST_OFFSETS, 5): {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [*partitions, partitions[1]]}],
        },
        (ApiKey.CREATE_TOPICS, 5): {
            "topics": [{"name": name, **topic} for name in names],
            "timeout": 1000,
            "validate_only": False,
        },
        (ApiKey.METADATA, 9): {"topics": [{"name": name} for name in names], **FLAGS},
    }
    await world.start(auto_create_topics_enable=False)
    client = await world.client()
    for (api, version), message in requests.items():
        assert await client.ask(api, message, version) is not None, api.name


@played
async def test_metadata_requests_create_a_hundred_topics_at_a_time(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    wanted = {"topics": [{"name": f"t{number}"} for number in range(150)], **FLAGS}
    answer = await client.ask(ApiKey.METADATA, wanted, 9)
    missing = [topic for topic in answer.topics if topic.error_code is ErrorCode.unknown_topic_or_partition]
    assert (len(broker.image.topics), len(missing)) == (100, 50)
    answer = await client.ask(ApiKey.METADATA, wanted, 9)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.none}


@played
async def test_the_partitions_of_one_request_are_limited_together(world: World) -> None:
    await world.start()
    client = await world.client()
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in (("a", MAX_PARTITIONS - 1), ("b", 2), ("c", 1))
    ]
    answer = await client.ask(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 1000, "validate_only": True}, 5)
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.none,
        ErrorCode.policy_violation,
        ErrorCode.none,
    ]


@played
async def test_metadata_of_members_is_limited_for_each_and_in_total(world: World) -> None:
    broker = await world.start(
        offsets_topic_num_partitions=1,
        queued_max_request_bytes=2_000_000,
        socket_request_max_bytes=2_000_000,
        message_max_bytes=600_000,
        group_initial_rebalance_delay_ms=0,
    )
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)

    async def join(group: str, size: int) -> ErrorCode:
        message = {**JOIN, "group_id": group, "protocols": [{"name": "range", "metadata": bytes(size)}]}
        answer = await client.ask(ApiKey.JOIN_GROUP, message, 3)
        return ErrorCode(answer.error_code)

    assert await join("big", 700_000) is ErrorCode.group_max_size_reached
    codes = [await join(f"g{number}", 500_000) for number in range(5)]
    assert codes == [ErrorCode.none] * 3 + [ErrorCode.group_max_size_reached] * 2
    assert broker.groups.size_bytes > 1_500_000
    await world.pass_time(20)
    assert broker.groups.size_bytes == 0, "their sessions are over"
    assert await join("g9", 500_000) is ErrorCode.none


@played
async def test_members_that_wait_for_others_delay_no_other_client(world: World) -> None:
    """Their metadata counts for the group, which has its own limit: members may wait for minutes."""
    broker = await world.start(
        offsets_topic_num_partitions=1,
        queued_max_request_bytes=2_000_000,
        socket_request_max_bytes=2_000_000,
        group_initial_rebalance_delay_ms=60_000,
    )
    other = await world.client()
    await other.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    members = [await world.client() for _ in range(4)]
    protocols = [{"name": f"{number:05}", "metadata": bytes(200)} for number in range(800)]
    message = {**JOIN, "rebalance_timeout": 600_000, "protocols": protocols, "reason": "because"}
    for number, member in enumerate(members):
        body = encode_request(ApiKey.JOIN_GROUP, 8, {**message, "group_instance_id": f"{number}"})
        member.send(ApiKey.JOIN_GROUP, body, 8)
        await world.pass_time(1)
        assert await other.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    assert broker.groups.size_bytes > 4 * 300_000
    assert 0 < broker.server.unanswered_bytes < 100, "their reasons are kept, which the group does not count"


@played
async def test_a_long_client_id_is_cut_in_the_ids_of_its_members(world: World) -> None:
    await world.start(offsets_topic_num_partitions=1)
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    message = {**JOIN, "protocols": [{"name": "range", "metadata": b""}]}
    client.send(ApiKey.JOIN_GROUP, message, 5, client_id="c" * 30_000)
    answer = await client.answer()
    assert answer.error_code is ErrorCode.member_id_required
    assert len(answer.member_id) < 300


def test_any_api_and_version_may_be_requested_and_none_is_remembered() -> None:
    for number in range(20_000):
        request_is_flexible(number % 30_000 - 10_000, number)
    assert request_is_flexible.cache_info().currsize <= 4096
