"""Requests that are nearly right, on several connections at once: others are served, and no handler breaks."""

import logging
import random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.fuzz.fuzz_requests import TOPIC, hostile_request
from odradek.protocol.api import ApiKey
from odradek.simulation.world import Play, World

CONNECTIONS: Final = 3


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
