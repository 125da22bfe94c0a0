"""Calls that a consumer refuses, with their error texts."""

import pytest

from odradek.model import ConfigurationError, InvalidTopicError, KafkaError, TopicPartition, UnavailableError
from odradek.simulation.world import World

T0 = TopicPartition("t", 0)


def test_refused_calls_explain_themselves(seed: int) -> None:
    world = World(seed)
    consumer = world.consumer("reader", "t")
    with pytest.raises(ConfigurationError, match="unsubscribe before"):
        consumer.assign([T0])
    with pytest.raises(InvalidTopicError):
        consumer.subscribe("not/a/name")
    with pytest.raises(ValueError, match="not a regular expression"):
        consumer.subscribe(pattern="(")
    with pytest.raises(ValueError, match="topics or to a pattern"):
        consumer.subscribe()
    with pytest.raises(KafkaError, match="not assigned"):
        consumer.seek(T0, 0)
    with pytest.raises(ConfigurationError, match="unknown assignor"):
        world.consumer("reader", partition_assignment_strategy="unfair")
    for address in ("localhost:9092", "[::1]:9092,b:9092"):
        with pytest.raises(
            ConfigurationError, match=r"is an address, but the arguments are topics: Consumer\('topic', boot"
        ):
            world.consumer("reader", address)
    with pytest.raises(ConfigurationError, match="heartbeat_interval_ms"):
        world.consumer("reader", heartbeat_interval_ms=5, session_timeout_ms=5)

    async def scene() -> None:
        with pytest.raises(UnavailableError, match="not started"):
            await consumer.poll()

    world.play(lambda _: scene())
