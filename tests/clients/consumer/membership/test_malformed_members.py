"""Groups of our consumers and a client that encodes the consumer protocol wrongly (M6, M12)."""

import asyncio
from typing import Any

import pytest

from odradek.clients.consumer.membership import classic_requests
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.simulation.world import World, until
from tests.world.scenes import in_world

T0 = TopicPartition("t", 0)
MALFORMED = b"\x00\x01\x00\x00\x00\x7ft"


def join(metadata: bytes, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }


@in_world()
async def test_a_malformed_subscription_names_its_member_and_the_group_goes_on_without_it(world: World) -> None:
    await world.create_topic("t")
    async with world.consumer("reader", "t", group_id="g", partition_assignment_strategy="range") as consumer:
        assert await consumer.poll(10_000) == []
        assert consumer.assignment() == {T0}
        stranger = await world.client("broken")
        joining = stranger.request(ApiKey.JOIN_GROUP, join(MALFORMED), 3)
        with pytest.raises(KafkaError, match=r"client id 'broken', host .*malformed.*stop or mend") as raised:
            while True:
                await consumer.poll(1_000)
        joined = await joining
        assert raised.value.code is ErrorCode.inconsistent_group_protocol
        assert joined.member_id in str(raised.value)
        stranger.close()
        async with asyncio.timeout(120):
            while consumer.assignment() != {T0}:
                await consumer.poll(1_000)


@in_world()
async def test_malformed_user_data_of_another_member_count_as_none(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create_topic("t", partitions=2)
    async with world.consumer("reader", "t", group_id="g", partition_assignment_strategy="sticky") as consumer:
        await consumer.poll(10_000)
        stranger = await world.client("broken")
        metadata = encode_subscription(Subscription(topics=("t",), user_data=MALFORMED))
        message = join(metadata) | {"protocols": [{"name": "sticky", "metadata": metadata}]}
        joining = stranger.request(ApiKey.JOIN_GROUP, message, 3)
        polling = asyncio.ensure_future(consumer.poll())
        joined = await joining
        sync = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        answer = await stranger.ask(ApiKey.SYNC_GROUP, {**sync, "assignments": []}, 2)
        assert answer.error_code == ErrorCode.none
        await until(lambda: len(consumer.assignment()) == 1)
        assert f"Member {joined.member_id} is treated as without owned partitions" in caplog.text
        polling.cancel()
        await asyncio.wait([polling])
        stranger.close()


def test_a_malformed_assignment_is_an_error_of_the_leaders_client(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_requests, "encode_assignment", lambda _: MALFORMED)

    async def scene(world: World) -> None:
        await world.create_topic("t")
        async with world.consumer("reader", "t", group_id="g") as consumer:
            with pytest.raises(KafkaError, match=r"leader sent member .* a malformed assignment") as raised:
                await consumer.poll(60_000)
            assert raised.value.code is ErrorCode.inconsistent_group_protocol

    World(seed).play(scene)
