"""A request with markers of many partitions is answered when all are committed, however many turns it takes."""

import asyncio
from typing import Any

import pytest

from odradek.broker.log.validation import AppendInfo
from odradek.broker.replication.partition import Waiter
from odradek.broker.transactions.transaction_markers import Marker, MarkerWriter
from odradek.broker.turns import TURN
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime.turns import next_turn
from odradek.simulation.virtual.clock import VirtualClock
from tests.world.scenes import awaited

PARTITIONS = [TopicPartition("t", number) for number in range(TURN)]


class Leaders:
    """A replica manager and each of its partitions; the markers wait until the test calls their waiters."""

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []

    def leader(self, *_: object) -> "Leaders":
        return self

    def append_marker(self, *_: object, **__: object) -> AppendInfo:
        return AppendInfo(0, 0, -1, 0, duplicate=False)

    def when_acknowledged(self, _: AppendInfo, *, acks: int, waiter: Waiter) -> None:
        assert acks == -1
        self.waiters.append(waiter)

    def acknowledge(self, error: KafkaError | None = None) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(error)


@pytest.mark.parametrize("error", [None, KafkaError(ErrorCode.not_enough_replicas_after_append)])
@awaited
async def test_markers_that_are_committed_between_turns_do_not_complete_the_request(error: KafkaError | None) -> None:
    leaders: Any = Leaders()
    writer = MarkerWriter(leaders, VirtualClock(), lambda *_, **__: None)
    marker = Marker(
        producer_id=1,
        producer_epoch=0,
        is_commit=True,
        coordinator_epoch=0,
        transaction_version=2,
        partitions=PARTITIONS,
    )
    request = asyncio.create_task(writer.write([marker]))
    await asyncio.sleep(0)
    first = len(leaders.waiters)
    assert 0 < first < len(PARTITIONS)
    leaders.acknowledge()
    for _ in PARTITIONS:
        await next_turn()
    last = len(leaders.waiters)
    assert first + last == len(PARTITIONS)
    assert not request.done()
    leaders.acknowledge(error)
    expected = [ErrorCode.none] * first + [ErrorCode.none if error is None else error.code] * last
    assert list((await request)[1].values()) == expected
