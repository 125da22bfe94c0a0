"""Changes and lists of `Admin` that are about several resources, and how their errors are returned (M10)."""

from typing import Any

import pytest

from odradek.clients import Admin, Consumer, NewTopic, Producer, SimpleConsumer
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.clients.admin.results import (
    RefusedGroupsError,
    RefusedMembersError,
    RefusedPartitionsError,
    RefusedTopicsError,
)
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.security.quotas import DEFAULT, QuotaEntity
from odradek.simulation.world import Member, World, settled
from odradek.testing import Simulation
from tests.clients.admin.scene import play, play_scripted
from tests.world.scenes import in_world, played_by

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@played_by(play, default_api_timeout_ms=5_000)
async def test_topics_that_are_refused_are_named_after_the_others_were_changed(admin: Admin, world: World) -> None:
    """M10: one rule for changes of several resources."""
    await admin.create_topic("t")
    with pytest.raises(RefusedTopicsError, match=r"Topic 't' already exists\. \(and 1 more\)") as refused:
        await admin.create_topics([NewTopic(name=name) for name in ("t", "new", "a b")])
    assert {name: each.code for name, each in refused.value.errors.items()} == {
        "t": ErrorCode.topic_already_exists,
        "a b": ErrorCode.invalid_topic_exception,
    }
    with pytest.raises(RefusedTopicsError, match="there is no topic 'nope'"):
        await admin.delete_topics(["new", "nope"])
    assert [each.name for each in await admin.list_topics()] == ["t"]
    with pytest.raises(KafkaError, match="'v' is to be created 2 times; name it once"):
        await admin.create_topics([NewTopic(name="v", partitions=1), NewTopic(name="v", partitions=2)])


@played_by(play, default_api_timeout_ms=5_000, brokers=2)
async def test_records_before_an_offset_are_deleted_on_every_leader(admin: Admin, world: World) -> None:
    """M10: delete records; -1 is everything that is replicated."""
    await admin.create_topics(
        [
            NewTopic(name="t", assignments={0: [0], 1: [1]}),
            NewTopic(name="u", configs={"cleanup.policy": "compact"}),
        ]
    )
    async with world.producer("writer") as producer:
        for number in range(20):
            await producer.send("t", b"%d" % number, key=b"k", partition=number % 2)
    assert await admin.delete_records({T0: 4, T1: -1}) == {T0: 4, T1: 10}
    with pytest.raises(RefusedPartitionsError) as refused:
        await admin.delete_records({T0: 5, T1: 99, U0: 0, TopicPartition("t", 7): 0})
    assert {str(key): each.code for key, each in refused.value.errors.items()} == {
        "t-1": ErrorCode.offset_out_of_range,
        "u-0": ErrorCode.policy_violation,
        "t-7": ErrorCode.invalid_partitions,
    }
    assert "t-1 has no offset 99" in str(refused.value.errors[T1])
    async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader")) as reader:
        assert await reader.beginning_offsets([T0, T1]) == {T0: 5, T1: 10}


@played_by(play, default_api_timeout_ms=5_000)
async def test_members_are_removed_by_member_id_and_by_instance_id(admin: Admin, world: World) -> None:
    """M10: KIP-345; the group's other members take over their partitions."""
    await admin.create_topic("t", partitions=2)
    static = await Member(world, "static", "t", "g", group_instance_id="one").start()
    dynamic = await Member(world, "dynamic", "t", "g").start()
    await settled([static, dynamic], 2)
    await static.fall_silent()
    with pytest.raises(RefusedMembersError, match="group 'g' has no member 'two'") as refused:
        await admin.remove_group_members("g", group_instance_ids=["one", "two"])
    assert list(refused.value.errors) == ["two"]
    await settled([dynamic], 2)
    (left,) = (await admin.describe_group("g")).members
    await dynamic.fall_silent()
    await admin.remove_group_members("g", member_ids=[left.member_id])
    assert (await admin.describe_group("g")).members == ()
    await admin.remove_group_members("g")
    for member in (static, dynamic):
        await member.stop()


@played_by(play, default_api_timeout_ms=5_000, brokers=2)
async def test_resources_with_a_configuration_are_listed(admin: Admin, world: World) -> None:
    """M10: KIP-1142."""
    await admin.create_topic("t")
    topic = ConfigResource(type=ConfigResourceType.TOPIC, name="t")
    brokers = [ConfigResource(type=ConfigResourceType.BROKER, name=str(number)) for number in range(2)]
    assert await admin.list_config_resources() == [topic, *brokers]
    assert await admin.list_config_resources([ConfigResourceType.BROKER]) == brokers
    found = await admin.describe_configs([topic, *brokers, ConfigResource(type=ConfigResourceType.BROKER, name="")])
    assert [each.name for each in found][:3] == ["t", "0", "1"]
    values = {each.name: {entry.name: entry.value for entry in entries} for each, entries in found.items()}
    assert (values["0"]["broker.id"], values["1"]["broker.id"]) == ("0", "1")


@played_by(play, default_api_timeout_ms=5_000)
async def test_the_versions_of_a_broker_are_described(admin: Admin, world: World) -> None:
    """M10: KIP-584."""
    for found in (await admin.describe_broker_versions(), await admin.describe_broker_versions(0)):
        assert found.api_versions[ApiKey.FETCH] == (4, 18)
        assert found.supported_features == {
            **dict.fromkeys(
                ("eligible.leader.replicas.version", "kraft.version", "share.version", "streams.version"), (0, 0)
            ),
            "group.version": (0, 1),
            "metadata.version": (7, 33),
            "transaction.version": (0, 2),
        }
        assert (found.finalized_features["group.version"], found.finalized_features_epoch) == ((1, 1), 33)


def test_a_group_that_a_response_omits_is_an_error_of_that_group(simulation: Simulation, broker: Any) -> None:
    """A coordinator that answers about other groups, or about none, must not raise a KeyError."""
    broker.answers[ApiKey.DELETE_GROUPS] = lambda _: {
        "results": [{"group_id": name, "error_code": 0} for name in ("other", "known")]
    }
    broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: {"groups": []}
    broker.answers[ApiKey.OFFSET_COMMIT] = lambda _: {"topics": []}
    asked: list[str] = []

    def coordinators(request: Any) -> Any:
        asked.extend(request.message.coordinator_keys)
        answer = broker.find_coordinator(request)
        return answer | {"coordinators": [each for each in answer["coordinators"] if each["key"] != "lost"]}

    broker.answers[ApiKey.FIND_COORDINATOR] = coordinators

    async def scene(admin: Admin) -> None:
        with pytest.raises(RefusedGroupsError, match="says nothing about 'omitted'") as refused:
            await admin.delete_groups(["known", "omitted", "lost"])
        assert {key: each.code for key, each in refused.value.errors.items()} == dict.fromkeys(
            ("omitted", "lost"), ErrorCode.unknown_server_error
        )
        found = (await admin.describe_groups(["omitted"]))["omitted"]
        assert isinstance(found, KafkaError)
        assert not found.retriable

    play_scripted(simulation, broker, scene)
    assert asked == ["known", "omitted", "lost", "omitted"]


@pytest.mark.parametrize(
    ("client", "wrong", "right"),
    [
        (Admin, "request_timeout", "request_timeout_ms"),
        (Producer, "linger", "linger_ms"),
        (Consumer, "auto_offset_resett", "auto_offset_reset"),
        (SimpleConsumer, "isolation_levels", "isolation_level"),
    ],
)
def test_an_unknown_setting_names_the_nearest_one(client: Any, wrong: str, right: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"no configuration key '{wrong}'; did you mean .*{right}"):
        client(bootstrap_servers="b:9092", **{wrong: 1})


# ---- Quotas ----------------------------------------------------------------------------------------------------------


@in_world(started=False)
async def test_quotas_are_set_described_and_removed(world: World) -> None:
    await world.start()
    clients, address = QuotaEntity(user="alice", client_id=DEFAULT), QuotaEntity(ip="10.0.0.1")
    async with world.admin() as admin:
        assert await admin.describe_client_quotas() == {}
        await admin.alter_client_quotas(clients, {"producer_byte_rate": 5}, validate_only=True)
        assert await admin.describe_client_quotas() == {}
        await admin.alter_client_quotas(clients, {"producer_byte_rate": 5, "request_percentage": 2.5})
        await admin.alter_client_quotas(address, {"connection_creation_rate": 1})
        assert await admin.describe_client_quotas() == {
            clients: {"producer_byte_rate": 5.0, "request_percentage": 2.5},
            address: {"connection_creation_rate": 1.0},
        }
        with pytest.raises(KafkaError) as caught:
            await admin.alter_client_quotas(address, {"producer_byte_rate": 1})
        assert caught.value.code is ErrorCode.invalid_request
        await admin.alter_client_quotas(clients, {"producer_byte_rate": None, "request_percentage": None})
        assert list(await admin.describe_client_quotas()) == [address]
