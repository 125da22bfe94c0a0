"""The wire clients beside a broker: which response belongs to which request, and what a closed connection does."""

import struct

import pytest

from odradek.protocol.api import ApiKey
from odradek.testing import BlockingWireClient, Cluster, World
from tests.world.scenes import in_world

CLUSTER = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
UNKNOWN_API = struct.pack(">hhih", 9999, 0, 1, -1)


@in_world()
async def test_a_response_goes_to_its_request_and_all_others_are_received_in_order(world: World) -> None:
    client = await world.client()
    client.send(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
    versions = client.request(ApiKey.API_VERSIONS, {}, 0)
    client.send(ApiKey.LIST_GROUPS, {"states_filter": []}, 4)
    assert ApiKey.METADATA in [each.api_key for each in (await versions).api_keys]
    assert (await client.answer()).cluster_id == world.broker.image.cluster_id
    assert (await client.answer()).groups == ()


@in_world()
async def test_a_closed_connection_ends_every_wait(world: World) -> None:
    client, other = await world.client(), await world.client("other")
    client.send_bytes(UNKNOWN_API)
    assert await client.receive() is None
    other.send_bytes(UNKNOWN_API)
    with pytest.raises(ConnectionResetError):
        await other.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
    assert client.is_closed
    assert other.is_closed


def test_the_blocking_client_receives_responses_and_the_end_of_the_connection():
    with Cluster() as cluster, BlockingWireClient(cluster.bootstrap_servers) as client:
        assert client.create_topic("t").error_code == 0
        assert [each.broker_id for each in client.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER).brokers] == [0]
        client.send_raw(struct.pack(">i", len(UNKNOWN_API)) + UNKNOWN_API)
        assert client.receive() is None
        with pytest.raises(ConnectionResetError):
            client.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
