"""The controller's own broker gets no requests, so its logs are checked by a task."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.broker.controller.controller_channel_manager import ControllerChannelManager
from odradek.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import ErrorCode, TopicPartition
from odradek.simulation.virtual.simulation import Simulation
from odradek.wire.client_authentication import NO_SECURITY

KEY = TopicPartition("t", 0)


def test_logs_are_checked_again_after_a_check_that_failed(seed: int) -> None:
    simulation = Simulation(seed)
    answers: list[Any] = [RuntimeError("planted"), ErrorCode.kafka_storage_error]
    updates: list[dict[TopicPartition, ErrorCode]] = []

    async def applied() -> None: ...

    def replica_error(_: TopicPartition) -> ErrorCode:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("ErrorCode", answer)

    async def main() -> None:
        partition = PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        topic = TopicImage(name="t", topic_id=UUID(int=1), partitions={0: partition})
        image = ClusterImage(topics={"t": topic}, brokers={1: BrokerImage(broker_id=1, endpoints=(), rack=None)})
        manager = ControllerChannelManager(
            cast("Any", SimpleNamespace(broker_id=1, image=image)),
            cast("Any", SimpleNamespace(wait_until_applied=applied, replica_error=replica_error)),
            simulation.runtime(),
            NO_SECURITY,
            epoch=1,
            update_replicas=lambda _, errors: updates.append(dict(errors)),
        )
        for _ in range(2):
            await manager.request_log_states(1)
            await asyncio.sleep(1)
        manager.close()

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="planted")):  # what tasks leave unhandled
        simulation.run(main())
    assert updates == [{KEY: ErrorCode.kafka_storage_error}]
