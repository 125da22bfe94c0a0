"""Without an authorizer, too, clients cannot send the requests of brokers: they lack the secret of the tree (X2)."""

from typing import Any

import pytest

from odradek.metadata import paths
from odradek.metadata.nodes import ClusterSecretNode
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient, fetch_message
from odradek.simulation.world import World
from tests.world.scenes import in_world

T0 = TopicPartition("t", 0)
ENDPOINT = {"listener": "PLAINTEXT", "host": "elsewhere", "port": 9}


def update_metadata(broker_epoch: int) -> dict[str, Any]:
    """Return a command that gives the cluster one broker, at another address."""
    broker = {"id": 0, "endpoints": [ENDPOINT], "rack": None, "epoch": broker_epoch}
    return {
        "controller_id": 0, "controller_epoch": 1, "broker_epoch": broker_epoch, "is_full": True, "topic_states": [],
        "live_brokers": [broker], "stops": [],
    }  # fmt: skip


async def stranger(world: World) -> WireClient:
    client = await world.client("stranger")
    client.act_as_broker(None)
    return client


def addresses(world: World) -> list[str]:
    return [str(each) for broker in world.broker.image.brokers.values() for each in broker.endpoints]


@in_world()
async def test_commands_of_a_client_are_refused_whatever_epoch_it_guesses(world: World) -> None:
    before = addresses(world)
    client = await stranger(world)
    answers = set()
    for epoch in (-1, world.broker.broker_epoch - 1, world.broker.broker_epoch, world.broker.broker_epoch + 1):
        answer = await client.ask(ApiKey.UPDATE_METADATA, update_metadata(epoch), 9)
        answers.add(ErrorCode(answer.error_code))
        answer = await client.ask(ApiKey.CONTROLLED_SHUTDOWN, {"broker_id": 0, "broker_epoch": epoch}, 3)
        answers.add(ErrorCode(answer.error_code))
    assert answers == {ErrorCode.cluster_authorization_failed}
    assert addresses(world) == before
    assert world.broker.metadata_loop.is_controller


@in_world(brokers=2)
async def test_a_forged_follower_does_not_advance_the_high_watermark(world: World) -> None:
    await world.create_topic("t", replication_factor=2)
    leader = next(each for each in world.running.values() if each.partitions.get(T0) is not None)
    follower = 1 - leader.broker_id
    client = await world.client("stranger", broker=leader.broker_id)
    message = {**fetch_message([("t", 0, 0)]), "replica_id": follower}
    for is_broker, error in ((False, ErrorCode.topic_authorization_failed), (True, ErrorCode.none)):
        client.act_as_broker(leader.proofs.make if is_broker else None)
        answer = await client.ask(ApiKey.FETCH, message, 12)
        assert answer.responses[0].partitions[0].error_code == error


@in_world()
async def test_a_transaction_is_not_extended_in_the_name_of_a_broker(world: World) -> None:
    client = await stranger(world)
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": []}, 5)
    assert answer.error_code == ErrorCode.cluster_authorization_failed


@pytest.mark.parametrize("requires", [False, True])
@in_world()
async def test_a_cluster_of_an_earlier_release_refuses_nothing_until_an_operator_says_so(
    world: World, requires: bool, caplog: pytest.LogCaptureFixture
) -> None:
    secret = ClusterSecretNode(secret=b"s" * 32, requires_proofs=requires)
    await world.store(0).set(paths.CLUSTER_SECRET, secret.encode())
    await world.stop(0)
    await world.start(0)
    assert ("can forge" in caplog.text) is not requires
    answer = await (await stranger(world)).ask(ApiKey.CONTROLLED_SHUTDOWN, {"broker_id": 9, "broker_epoch": -1}, 3)
    assert (answer.error_code == ErrorCode.cluster_authorization_failed) is requires
    assert ("a broker of an earlier release registers and may lead" in caplog.text) is requires
