"""Requests of the consumer protocol to a broker: authorization, memory, configuration (M7)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.broker.coordinators.coordinator_context import CoordinatorContext
from odradek.broker.security.admission import Admission
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.security import (
    AclOperation,
    Action,
    AuthorizableRequestContext,
    AuthorizationResult,
    ResourceType,
)
from odradek.simulation.virtual.simulation import InlineWorker
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import played

GROUP, SECRET, OPEN = "g", "secret", "open"


class HidesTheSecret:
    """An authorizer that lets nobody describe one topic while `is_strict`."""

    def __init__(self) -> None:
        self.is_strict = False
        self.version = 1

    def authorize(
        self, context: AuthorizableRequestContext, actions: Sequence[Action]
    ) -> Sequence[AuthorizationResult]:
        return [self._decide(action) for action in actions]

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        return AuthorizationResult.ALLOWED

    def _decide(self, action: Action) -> AuthorizationResult:
        hides = action.operation is AclOperation.DESCRIBE and action.resource_pattern.name == SECRET
        return AuthorizationResult.DENIED if hides and self.is_strict else AuthorizationResult.ALLOWED

    def change(self, *, is_strict: bool) -> None:
        """Be strict or not from now on."""
        self.is_strict = is_strict
        self.version += 1


async def heartbeat(client: WireClient, member: str = "m", **changes: Any) -> Any:
    message = {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout": 1000,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "topic_partitions": [],
    }
    while True:
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message | changes, 1)
        if answer.error_code not in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress):
            return answer


async def begin(world: World, rules: HidesTheSecret, **config: Any) -> WireClient:
    await world.start(admission=Admission(rules), **config)
    client = await world.client()
    for topic in (SECRET, OPEN):
        await client.create_topic(topic)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": GROUP, "key_type": 0}, 2)
    return client


@played
async def test_topics_that_may_not_be_described_are_refused_by_name_and_do_not_match_expressions(world: World) -> None:
    rules = HidesTheSecret()
    client = await begin(world, rules)
    rules.change(is_strict=True)
    refused = await heartbeat(client, subscribed_topic_names=[SECRET])
    assert refused.error_code == ErrorCode.topic_authorization_failed
    joined = await heartbeat(client, subscribed_topic_regex=".*")
    assert (joined.error_code, joined.assignment.topic_partitions) == (ErrorCode.none, ())
    await asyncio.sleep(1)
    owner = await heartbeat(client, member_epoch=joined.member_epoch, subscribed_topic_regex=".*")
    assert (owner.error_code, len(owner.assignment.topic_partitions)) == (ErrorCode.none, 1)


@played
async def test_a_group_with_a_topic_that_may_not_be_described_is_not_described(world: World) -> None:
    rules = HidesTheSecret()
    client = await begin(world, rules)
    await heartbeat(client, subscribed_topic_names=[SECRET, OPEN])
    message = {"group_ids": [GROUP], "include_authorized_operations": False}
    (shown,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 1)).groups
    (member,) = shown.members
    assert sorted(each.topic_name for each in member.assignment.topic_partitions) == [OPEN, SECRET]
    rules.change(is_strict=True)
    (hidden,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 1)).groups
    assert (hidden.error_code, hidden.members) == (ErrorCode.topic_authorization_failed, ())


@played
async def test_members_share_the_memory_of_requests(world: World) -> None:
    client = await begin(world, HidesTheSecret(), queued_max_request_bytes=120_000, socket_request_max_bytes=100_000)
    assert (await heartbeat(client, subscribed_topic_names=[OPEN])).error_code == ErrorCode.none
    many = [f"a topic that does not exist {number}" for number in range(800)]
    assert (await heartbeat(client, "one", subscribed_topic_names=many)).error_code == ErrorCode.none
    refused = await heartbeat(client, "two", subscribed_topic_names=many)
    assert refused.error_code == ErrorCode.group_max_size_reached
    assert "queued.max.request.bytes" in refused.error_message
    again = await heartbeat(client, "one", subscribed_topic_names=many[:-1])
    assert again.error_code == ErrorCode.none, "it needs less than before"


@played
async def test_a_broker_without_the_protocol_says_so(world: World) -> None:
    client = await begin(world, HidesTheSecret(), group_coordinator_rebalance_protocols="classic")
    refused = await heartbeat(client, subscribed_topic_names=[OPEN])
    assert refused.error_code == ErrorCode.unsupported_version
    assert "group.coordinator.rebalance.protocols" in refused.error_message


@played
async def test_a_heartbeat_that_fails_while_the_broker_ends_leaves_no_exception_behind(world: World) -> None:
    """The event loop would report an exception that was never retrieved, and `played` fails then."""
    client = await begin(world, HidesTheSecret())
    drop = CoordinatorContext[Any, Any]._drop

    def drop_and_end(context: CoordinatorContext[Any, Any], error: KafkaError) -> None:
        drop(context, error)
        world.broker.dispatcher.kill()

    world.simulation.disk(world.hosts[0]).broken.add("/data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoordinatorContext, "_drop", drop_and_end)
        asking = asyncio.create_task(heartbeat(client, subscribed_topic_names=[OPEN]))
        await world.broker.failed.wait()
    await world.kill()
    with pytest.raises(ConnectionError):
        await asking


@played
async def test_the_first_heartbeat_imports_the_assignors_in_the_worker(world: World) -> None:
    """Numpy takes 0.2 s, in which the loop would serve nobody."""
    client = await begin(world, HidesTheSecret())
    submitted: list[Callable[[], Any]] = []
    worker, loading = InlineWorker(), asyncio.get_running_loop().create_future()

    def submit(work: Callable[[], Any]) -> "asyncio.Future[Any]":
        submitted.append(work)
        return loading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InlineWorker, "submit", lambda _, work: submit(work))
        joining = asyncio.create_task(heartbeat(client, subscribed_topic_names=[OPEN]))
        await asyncio.sleep(10)
    (work,) = submitted
    assert not joining.done()
    assert set((await worker.submit(work)).keys()) == {"uniform", "range"}
    loading.set_result(None)
    assert (await joining).error_code == ErrorCode.none
    assert (await heartbeat(client, "n", subscribed_topic_names=[OPEN])).error_code == ErrorCode.none


@pytest.mark.parametrize(
    ("assignors", "text"),
    [("nosuch", "group.consumer.assignors: .*nosuch"), ("", "group.consumer.assignors is empty")],
)
@played
async def test_an_assignor_that_does_not_exist_ends_the_start(world: World, assignors: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        await world.start(group_consumer_assignors=assignors)


@played
async def test_kafkas_names_of_assignors_are_known(world: World) -> None:
    name = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    client = await begin(world, HidesTheSecret(), group_consumer_assignors=name)
    joined = await heartbeat(client, subscribed_topic_names=[OPEN], server_assignor="range")
    assert joined.error_code == ErrorCode.none


@played
async def test_a_group_is_described_as_kafkas_tools_expect(world: World) -> None:
    """M7. Addresses as Java prints them, Kafka's words for a group that is not there, all operations of a group."""
    client = await begin(world, HidesTheSecret())
    await heartbeat(client, subscribed_topic_names=[OPEN])
    message = {"group_ids": [GROUP, "nope"], "include_authorized_operations": True}
    shown, missing = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 1)).groups
    assert [each.client_host[0] for each in shown.members] == ["/"]
    names = ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    assert shown.authorized_operations == sum(1 << AclOperation[name] for name in names)
    assert (missing.error_code, missing.error_message) == (ErrorCode.group_id_not_found, "Group nope not found.")
    classic = {"groups": [GROUP], "include_authorized_operations": False}
    (other,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, classic, 6)).groups
    assert (other.group_state, other.error_message) == ("Dead", f"Group {GROUP} is not a classic group.")
