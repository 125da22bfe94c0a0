"""A producer over one scripted broker, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import decode_records
from odradek.testing import Simulation

Scene = Callable[[Producer], Awaitable[None]]


@pytest.fixture
def play(simulation: Simulation, broker: Any) -> Callable[..., None]:
    """Runs a scene with a started producer; the topic `t` has two partitions, and `log` answers Produce."""

    def run(log: Any, scene: Scene, **settings: Any) -> None:
        async def main() -> None:
            broker.topics.setdefault("t", {0: broker.node_id, 1: broker.node_id})
            broker.answers[ApiKey.PRODUCE] = log
            await broker.start()
            async with Producer(broker.address, runtime=simulation.runtime("client"), **settings) as producer:
                await scene(producer)

        simulation.run(main())

    return run


@pytest.fixture
def values() -> Callable[..., list[bytes]]:
    """The values that a log has taken, of one partition."""

    def taken(log: Any, partition: int = 0) -> list[bytes]:
        return [
            record.value or b""
            for batch in log.taken
            if batch.partition == partition
            for record in decode_records(batch.records)
        ]

    return taken
