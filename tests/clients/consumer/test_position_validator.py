"""Positions are compared with the leader's log (KIP-320); a seek ends the comparison."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from odradek.clients.consumer.fetching.position_validator import PositionValidator
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import TopicPartitionState
from odradek.model import ErrorCode, TopicPartition


class Connection:
    """A connection to a broker that knows no epoch."""

    def supports(self, _: Any) -> bool:
        return True

    def version(self, _: Any) -> int:
        return 4

    async def request(self, _: Any, message: Any) -> Any:
        answers = [
            SimpleNamespace(partition=each["partition"], error_code=ErrorCode.none, end_offset=-1, leader_epoch=-1)
            for each in message["topics"][0]["partitions"]
        ]
        return SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=answers)])


def test_a_seek_to_a_position_without_an_epoch_before_the_request_is_written_is_not_a_truncation() -> None:
    async def to_broker(_: int) -> Connection:
        return Connection()

    started: list[Coroutine[Any, Any, None]] = []
    clock = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0)
    cluster: Any = SimpleNamespace(
        tasks=SimpleNamespace(spawn=lambda coroutine, _: started.append(coroutine)),
        connections=SimpleNamespace(to_broker=to_broker),
        runtime=SimpleNamespace(clock=clock),
    )
    state = TopicPartitionState(TopicPartition("t", 0), current_leader_epoch=5)
    state.seek(10, 3)
    validator = PositionValidator(cluster, ConsumerSettings(auto_offset_reset="earliest"), lambda: None)
    validator.validate(1, [state])
    state.seek(7)
    asyncio.run(started.pop())
    assert (state.position, state.reset, state.is_fetching) == (7, None, False)
