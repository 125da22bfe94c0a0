"""Requests that are nearly right, on several connections at once: others are served, and no handler breaks."""

import logging
import random
import struct
from typing import Any, Final

import pytest
from fuzz_batches import random_batch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_samples import change, sample

from odradek.broker.serving.apis import apis
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import encode_request_header
from odradek.protocol.messages.message_codec import encode_request
from odradek.protocol.messages.schemas import load_request_schema
from odradek.testing.world import Play, World

CONNECTIONS: Final = 3
TOPIC: Final = "name"
"""The value of most random strings of `sample`: topics and groups of this name exist."""

_LIES: Final = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", b"")


def hostile_request(chance: random.Random, batch: bytes) -> bytes:
    """A frame: an API and version that are served, fields changed, at times bytes changed."""
    api = chance.choice(list(apis().values()))
    version = chance.choice(list(api.served))
    message, _ = sample(load_request_schema(api.key, version), chance)
    for _ in range(chance.choice((0, 1, 3, 8, 20))):
        change(message, chance)
    _fill(message, chance, batch)
    try:
        body = encode_request(api.key, version, message)
    except (struct.error, TypeError, AttributeError, KeyError, OverflowError):
        body = b""  # a change that cannot be written
    frame = encode_request_header(api.key, version, chance.randrange(1 << 31), chance.choice((None, "", "c"))) + body
    if chance.random() < 0.25:
        place = chance.randrange(len(frame))
        lie = chance.choice(_LIES)
        frame = frame[:place] + lie + frame[place + chance.choice((0, 1, 4)) :]
    return frame


def _fill(message: Any, chance: random.Random, batch: bytes) -> None:
    """Numbers that exist, and batches instead of noise: else most requests end at their first look-up."""
    for key, value in message.items() if isinstance(message, dict) else ():
        if isinstance(value, dict):
            _fill(value, chance, batch)
        elif isinstance(value, list):
            for each in value:
                _fill(each, chance, batch)
        elif isinstance(value, bytes):
            message[key] = chance.choice((batch, batch, value, random_batch(chance), batch[:-1], batch + batch, b""))
        elif isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.6:
            message[key] = chance.choice((0, 0, 1, -1, 100))


@given(st.lists(st.tuples(st.integers(0, CONNECTIONS - 1), st.integers(0, 1 << 40)), min_size=4, max_size=30))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_hostile_requests_cost_their_own_connections_only(
    play: Play, caplog: pytest.LogCaptureFixture, steps: list[tuple[int, int]]
) -> None:
    caplog.clear()

    async def scene(world: World) -> None:
        await world.start(
            offsets_topic_num_partitions=1, auto_create_topics_enable=False, group_initial_rebalance_delay_ms=0
        )
        neighbour = await world.client()
        await neighbour.create_topic(TOPIC, 2)
        await neighbour.create_topic("good", config={"retention.ms": "-1"})
        await neighbour.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [TOPIC]}, 4)
        batch = bytes(world.batch(b"a", b"b"))
        clients: list[Any] = [None] * CONNECTIONS
        for count, (number, seed) in enumerate(steps):
            if clients[number] is None or clients[number].is_closed:
                clients[number] = await world.client()
            clients[number].send_bytes(hostile_request(random.Random(seed), batch))
            await world.pass_time(0.01)
            answer = await neighbour.produce("good", world.batch(b"x"))
            assert (answer.error_code, answer.base_offset) == (0, count)
        await world.pass_time(60)
        fetched = await neighbour.fetch("good", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24)
        assert world.values(fetched.records) == [b"x"] * len(steps)

    with caplog.at_level(logging.WARNING):
        play(scene)
    broken = [record for record in caplog.records if record.exc_info]
    assert not broken, "\n".join(f"{record.getMessage()}\n{record.exc_text}" for record in broken)
