"""An invalid request closes its connection and no other; ApiVersions is always answered."""

import asyncio
import contextlib
import random
import struct
from typing import Any

import pytest

from conformance.fuzz.schema_samples import sample
from odradek.broker.apis import APIS, SWITCHED_OFF
from odradek.model import ErrorCode
from odradek.protocol.api import BETWEEN_BROKERS, ApiKey, schema_versions
from odradek.protocol.messages.message_codec import decode_response
from odradek.protocol.messages.schemas import load_request_schema
from odradek.simulation.wire_client import create_topic_message
from odradek.simulation.world import Play, World
from tests.world.scenes import in_world, played

SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
@played
async def test_api_versions_lists_the_served_requests(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    answer = await client.ask(ApiKey.API_VERSIONS, SOFTWARE, version)
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert told[ApiKey.PRODUCE] == (0, 13)
    assert told[ApiKey.FETCH] == (4, 18)
    assert told[ApiKey.METADATA] == (0, 13)
    assert told[ApiKey.INIT_PRODUCER_ID] == (0, 6)
    assert set(told) == set(APIS) - BETWEEN_BROKERS | set(SWITCHED_OFF)
    assert ApiKey.ALTER_PARTITION not in told


@pytest.mark.parametrize("version", [3, 4])
@played
async def test_api_versions_names_the_features_of_the_cluster(world: World, version: int) -> None:
    """KIP-584. In version 3, some clients refuse the whole response if a supported level is 0."""
    await world.start()
    answer = await (await world.client()).ask(ApiKey.API_VERSIONS, SOFTWARE, version)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    assert supported == {"metadata.version": (7, 33)} | (
        {
            **dict.fromkeys(
                ("eligible.leader.replicas.version", "kraft.version", "share.version", "streams.version"), (0, 0)
            ),
            "group.version": (0, 1),
            "transaction.version": (0, 2),
        }
        if version == 4
        else {}
    )
    assert finalized == {"metadata.version": (33, 33), "group.version": (1, 1), "transaction.version": (2, 2)}
    assert answer.finalized_features_epoch == 33


@pytest.mark.parametrize("api", sorted(map(ApiKey, SWITCHED_OFF)), ids=lambda api: api.name)
@played
async def test_an_api_whose_feature_is_off_is_answered_in_the_body(world: World, api: ApiKey) -> None:
    await world.start()
    client = await world.client()
    for version in schema_versions(api):
        message, _ = sample(load_request_schema(api, version), random.Random(3))
        answer = await client.ask(api, message, version)
        groups = getattr(answer, "groups", [answer])
        wanted = "delegation_token_request_not_allowed" if "TOKEN" in api.name else "unsupported_version"
        assert {each.error_code.name for each in groups} <= {wanted}


@played
async def test_a_large_request_of_a_feature_that_is_off_closes_its_connection(world: World) -> None:
    await world.start()
    client = await world.client()
    message = {"group_ids": ["g" * 30_000] * 10, "include_authorized_operations": False}
    client.send(ApiKey.SHARE_GROUP_DESCRIBE, message, 1)
    assert await client.receive() is None


@played
async def test_the_topic_of_a_quorum_cannot_be_created(world: World) -> None:
    await world.start()
    client = await world.client()
    answer = await client.ask(ApiKey.CREATE_TOPICS, create_topic_message("__cluster_metadata"))
    assert answer.topics[0].error_code is ErrorCode.invalid_request
    assert answer.topics[0].error_message == "Creation of internal topic __cluster_metadata is prohibited."


@pytest.mark.parametrize("version", [0, 1, 2])
@in_world(brokers=2, started=False)
async def test_the_quorum_is_the_controller_and_the_brokers(world: World, version: int) -> None:
    """KIP-595: a tool that looks crashes unless every voter is among the nodes."""
    await world.start(0)
    await world.start(1)
    await world.pass_time(1)
    client = await world.client()
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": number}]}
        for name, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("t", 0))
    ]
    answer = await client.ask(ApiKey.DESCRIBE_QUORUM, {"topics": topics}, version)
    quorum, *others = (topic.partitions[0] for topic in answer.topics)
    assert quorum.leader_id == world.broker.image.controller_id
    assert [each.replica_id for each in quorum.current_voters] == [0, 1]
    assert {each.error_code for each in others} == {ErrorCode.unknown_topic_or_partition}
    if version == 2:
        assert [each.node_id for each in answer.nodes] == [0, 1]


@played
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(world: World) -> None:
    await world.start()
    client = await world.client()
    client.send_bytes(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1) + b"\x00whatever")
    frame = await client.receive()
    assert frame is not None
    assert struct.unpack_from(">i", frame) == (5,)
    answer = decode_response(ApiKey.API_VERSIONS, 0, frame, 4)
    assert answer.error_code == ErrorCode.unsupported_version
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(ApiKey.API_VERSIONS, 5)]
    assert (await client.ask(ApiKey.API_VERSIONS, SOFTWARE, 4)).error_code == 0


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (None, ErrorCode.none),
        ((None, 7), ErrorCode.none),
        (("ours", 0), ErrorCode.none),
        (("ours", 1), ErrorCode.rebootstrap_required),
        (("other", 0), ErrorCode.rebootstrap_required),
        (("ours", -1), ErrorCode.rebootstrap_required),
    ],
)
@played
async def test_a_connection_that_was_meant_for_another_broker_starts_again(
    world: World, target: tuple[str | None, int] | None, error: ErrorCode
) -> None:
    """KIP-1242"""
    broker = await world.start()
    client = await world.client()
    body = b"\x02a\x021"
    if target is not None:
        cluster, node = target
        name = broker.image.cluster_id if cluster == "ours" else cluster
        body += b"\x00" if name is None else bytes([len(name) + 1]) + name.encode()
        body += struct.pack(">i", node)
    version = 4 if target is None else 5
    client.send_bytes(struct.pack(">hhihx", ApiKey.API_VERSIONS, version, 5, -1) + body + b"\x00")
    frame = await client.receive()
    assert frame is not None
    answer = decode_response(ApiKey.API_VERSIONS, 4, frame, 4)
    assert answer.error_code == error
    assert bool(answer.api_keys) == (error == ErrorCode.none)


@played
async def test_software_that_can_not_be_is_an_invalid_request(world: World) -> None:
    await world.start()
    client = await world.client()
    answer = await client.ask(ApiKey.API_VERSIONS, {**SOFTWARE, "client_software_name": "-no-"}, 3)
    assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"\x00\x12\x00",
        struct.pack(">hhih", 500, 0, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, 500) + b"short",
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + b"\x7f\xff\xff\xff",
        struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, -1) + b"\xff\xff\x00\x01",
        struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1) + b"\xff" * 40,
        struct.pack(">hhih", ApiKey.FETCH, 12, 1, -1) + b"\xff" * 40,
        struct.pack(">hhih", ApiKey.CREATE_TOPICS, 7, 1, -1) + b"\xff" * 40,
    ],
)
@played
async def test_a_malformed_request_costs_its_connection_alone(world: World, payload: bytes) -> None:
    await world.start()
    client, other = await world.client(), await world.client()
    client.send_bytes(payload)
    assert await client.receive() is None
    await other.create_topic("t")


@pytest.mark.parametrize(
    ("api", "version", "reason"),
    [
        (ApiKey.ENVELOPE, 0, "ENVELOPE version 0: this broker does not serve this API"),
        (500, 7, "API 500 version 7: this broker does not serve this API"),
        (ApiKey.METADATA, 99, "METADATA version 99: this broker serves versions 0 to 13 of this API"),
        (ApiKey.PRODUCE, 2, "PRODUCE version 2: this broker serves versions 3 to 13 of this API"),
    ],
)
def test_an_api_that_is_not_served_closes_the_connection_with_one_line(
    play: Play, caplog: pytest.LogCaptureFixture, api: int, version: int, reason: str
) -> None:
    async def scene(world: World) -> None:
        await world.start()
        client, old = await world.client(), await world.client()
        await client.ask(ApiKey.API_VERSIONS, {"client_software_name": "libx", "client_software_version": "2.3"}, 3)
        caplog.clear()
        for connection in (client, old):
            connection.send_bytes(struct.pack(">hhih", api, version, 1, 3) + b"me\n\x00")
            assert await connection.receive() is None
        first, second = (record.getMessage() for record in caplog.records)
        assert first.endswith(f": {reason}; sent by libx 2.3, client id 'me\\n'")
        assert second.endswith(f": {reason}; sent by unknown client software, client id 'me\\n'")

    with caplog.at_level("INFO"):
        play(scene)


def test_lines_for_apis_that_are_not_served_are_limited(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await world.start()
        caplog.clear()
        for _ in range(50):
            client = await world.client()
            client.send_bytes(struct.pack(">hhih", ApiKey.ENVELOPE, 0, 1, -1) + b"\x00")
            assert await client.receive() is None
        assert len(caplog.records) == 1
        await asyncio.sleep(60)
        assert caplog.messages[1].startswith("49 more lines like this one in the last 60 s: closing the connection")

    with caplog.at_level("INFO"):
        play(scene)


@played
async def test_cold_requests_are_done_one_after_the_other(world: World) -> None:
    await world.start()
    client = await world.client()
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    client.send(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 1000}, 7)
    names = {
        "topics": [{"name": "t"}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    client.send(ApiKey.METADATA, names, 9)
    client.send_produce("t", world.batch(b"a"))
    assert (await client.answer()).topics[0].error_code == 0
    assert (await client.answer()).topics[0].error_code == 0
    assert (await client.produce_response()).topics[0].partitions[0].error_code == 0


@played
async def test_a_handler_that_fails_costs_the_connection_and_is_logged(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from odradek.broker.handlers import describe_cluster

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    await world.start()
    client = await world.client()
    monkeypatch.setattr(describe_cluster, "handle", fail)
    asked = {"include_cluster_authorized_operations": False}
    with pytest.raises(ConnectionResetError):
        await client.ask(ApiKey.DESCRIBE_CLUSTER, asked, 0)
    assert "DESCRIBE_CLUSTER" in caplog.text
    assert (await world.client()) is not None


@played
async def test_clients_that_are_too_many_are_turned_away(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start(max_connections=2)
    clients = []
    for _ in range(50):
        with contextlib.suppress(ConnectionResetError):
            clients.append(await world.client())
    await world.pass_time(1)
    admitted = [client for client in clients if not client.is_closed]
    assert len(admitted) == 2
    admitted[0].transport.abort()
    await world.pass_time(1)
    assert not (await world.client()).is_closed
    assert caplog.text.count("max.connections") == 1, "and not 48"
    await world.pass_time(60)
    assert "47 more lines like this one" in caplog.text


@played
async def test_connections_above_the_creation_rate_are_served_later(world: World) -> None:
    await world.start(max_connection_creation_rate=4)
    await world.pass_time(5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    crowd = [await world.client() for _ in range(9)]
    times = []
    for client in crowd:
        await client.ask(ApiKey.API_VERSIONS, {}, 0)
        times.append(loop.time() - began)
    assert times[3] < 0.1
    assert 1.2 < times[8] < 1.4


@played
async def test_an_idle_client_is_closed(world: World) -> None:
    await world.start(connections_max_idle_ms=10_000)
    idle, polling = await world.client(), await world.client()
    await polling.create_topic("t")
    polling.send_fetch([("t", 0, 0)], max_wait_ms=60_000)
    await world.pass_time(30)
    assert (idle.is_closed, polling.is_closed) == (True, False)


@played
async def test_a_client_that_connects_while_the_broker_starts_is_answered_when_it_serves(world: World) -> None:
    first = await world.start()
    await (await world.client()).create_topic("t")
    await first.stop()
    await first.store.close()
    starting = asyncio.create_task(world.start())
    client = None
    while client is None:
        with contextlib.suppress(ConnectionRefusedError):
            client = await world.client()
    fetched = await client.fetch("t", 0)
    assert fetched.error_code == 0
    assert starting.done()


# ---- A stopped server ------------------------------------------------------------------------------------------------


@in_world()
async def test_a_connection_that_opens_after_the_others_were_reset_is_refused(world: World) -> None:
    """It was accepted before, and would have its requests served by an event loop that is being closed."""
    server = world.broker.server
    client = await world.client()
    await client.create_topic("t")
    (connection,) = server._connections
    server.abort_connections()
    assert not server.connection_opened(connection, "PLAINTEXT")
    client.close()
