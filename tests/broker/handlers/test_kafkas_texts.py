"""Errors have Kafka's own words where scripts look for them."""

from typing import Final

import pytest

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.produce import ProduceTopic, encode_produce_request
from odradek.simulation.world import World
from tests.broker.handlers.kafkas_texts import ROWS, TOPICS, Row, error_texts
from tests.world.scenes import in_world, played

_VERSION: Final = 9


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@in_world({"group.consumer.assignors": "uniform,range"})
async def test_an_error_begins_with_kafkas_text(world: World, row: Row) -> None:
    client = await world.client()
    for name, partitions in TOPICS.items():
        await client.create_topic(name, partitions)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["texts"]}, 4)
    await world.pass_time(2)
    answer = await client.ask(row.api, row.message, row.version)
    assert next(error_texts(answer)).startswith(row.text)


@played
async def test_a_batch_that_is_too_large_is_refused_with_the_text_of_kafkas_clients(world: World) -> None:
    """Kafka's broker sends none, and its clients print theirs."""
    await world.start()
    client = await world.client()
    await client.create_topic("t", config={"max.message.bytes": "100"})
    topics = [ProduceTopic("t", None, [(0, world.batch(bytes(500)))])]
    client.send(ApiKey.PRODUCE, b"".join(encode_produce_request(_VERSION, topics, acks=1, timeout_ms=1)), _VERSION)
    text = (await client.produce_response()).topics[0].partitions[0].error_message
    assert text is not None
    assert text.startswith("The request included a message larger than the max message size the server will accept")
