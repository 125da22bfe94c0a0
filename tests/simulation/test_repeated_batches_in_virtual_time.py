"""An idempotent producer that sends acknowledged batches again while faults come and go: each is there once.

`ODRADEK_SEEDS=1000 pytest tests/simulation/test_repeated_batches_in_virtual_time.py` tries so many.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from sampling import seeds

from odradek.broker.replication.partition import Partition
from odradek.model import ErrorCode, OdradekError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_response, encode_produce_request
from odradek.testing.simulated_cluster.faults.catalogue import FAULTS
from odradek.testing.simulated_cluster.faults.processes import kill
from odradek.testing.simulated_cluster.faults.schedule import Schedule
from odradek.testing.simulated_cluster.promises import BROKERS, PATIENCE_S
from odradek.testing.simulated_cluster.setup import CONFIG
from odradek.testing.simulated_cluster.workloads.records import TOPIC
from odradek.testing.simulated_cluster.workloads.workload import create_topic
from odradek.testing.simulation.clock import EPOCH_MS
from odradek.testing.world import World, until
from odradek.wire.client_connection import ClientConnection, open_connection

T0: Final = TopicPartition(TOPIC, 0)
HOST: Final = "writer-0"
REMEMBERED: Final = 5
WAITS: Final = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
    ErrorCode.kafka_storage_error,
    ErrorCode.unknown_topic_or_partition,
}
"""The errors that a batch in the log may get for a while instead of its offset."""


class Repeater:
    """A producer of one batch at a time, each of one record, which is its number."""

    def __init__(self, world: World) -> None:
        self.offsets: list[int] = []
        self.repeated = self.repeated_below_min = 0
        self._world = world
        self._chance = world.simulation.entropy("repeater")
        self._connections: dict[int, ClientConnection] = {}

    async def run(self) -> None:
        """Send for ever: the next batch until it is acknowledged, then some of the last five again."""
        while True:
            await self._send_next()
            await asyncio.sleep(self._chance.choice((0.0, 0.2, 1.0)) * self._chance.random())
            for _ in range(self._chance.choice((0, 1, 3))):
                await self._send_again()

    async def _send_next(self) -> None:
        while True:
            code, offset = await self._produce(len(self.offsets))
            if code is ErrorCode.none:
                self.offsets.append(offset)
                return
            assert code in WAITS | {ErrorCode.not_enough_replicas}, code
            await asyncio.sleep(0.1)

    async def _send_again(self) -> None:
        sequence = self._chance.randrange(max(len(self.offsets) - REMEMBERED, 0), len(self.offsets))
        is_below_min = any(len(partition.isr) < 2 for partition in self._led().values())
        code, offset = await self._produce(sequence)
        if code is ErrorCode.none:
            assert offset == self.offsets[sequence], f"batch {sequence} is at {self.offsets[sequence]}, not {offset}"
            self.repeated += 1
            self.repeated_below_min += is_below_min
        else:
            assert code in WAITS, f"batch {sequence}, which was acknowledged, is answered {code.name}"

    def _led(self) -> dict[int, Partition]:
        found = {number: broker.partitions.get(T0) for number, broker in self._world.running.items()}
        return {number: partition for number, partition in found.items() if partition is not None}

    async def _produce(self, sequence: int) -> tuple[ErrorCode, int]:
        batch = encode_batch(
            [(EPOCH_MS, None, b"%d" % sequence, ())], producer_id=77, producer_epoch=0, base_sequence=sequence
        )
        body = encode_produce_request(9, [ProduceTopic(TOPIC, None, [(0, batch)])], acks=-1, timeout_ms=2_000)
        number = next(iter(self._led()), None)
        if number is None:
            return ErrorCode.not_leader_or_follower, -1
        try:
            if number not in self._connections:
                self._connections[number] = await self._connect(number)
            reply = await self._connections[number].exchange(ApiKey.PRODUCE, 9, body)
        except OdradekError:
            if (connection := self._connections.pop(number, None)) is not None:
                connection.close()
            return ErrorCode.request_timed_out, -1
        ((_, _, (answer,)),) = decode_produce_response(9, reply.frame, reply.offset).topics
        return ErrorCode(answer.error_code), answer.base_offset

    async def _connect(self, number: int) -> ClientConnection:
        return await open_connection(
            self._world.simulation.runtime(HOST),
            self._world.hosts[number],
            9092,
            client_id=HOST,
            request_timeout_ms=4_000,
            setup_timeout_ms=2_000,
            max_response_bytes=1 << 20,
        )

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


async def starve(schedule: Schedule, one: int, other: int) -> None:
    """Leave a leader alone in the ISR, and block its responses to the client in half of the cases."""
    world = schedule.world
    led = [number for number, broker in world.running.items() if broker.partitions.get(T0)]
    for number in [each for each in world.running if each not in led]:
        schedule.note(f"kill {number}")
        await kill(schedule, number, number)
    if led and schedule.chance.random() < 0.5:
        schedule.note(f"mute {led[0]} to {HOST}")
        world.simulation.network.block(world.hosts[led[0]], HOST)
        await asyncio.sleep(schedule.chance.random())
        world.simulation.network.heal()


def play_repetitions(seed: int) -> Repeater:
    """One seed's world, faults and judgement; what goes wrong carries the story."""
    found: list[tuple[Schedule, Repeater]] = []

    async def scenario(world: World) -> None:
        schedule = Schedule(world, {**FAULTS, "starve": starve}, [*FAULTS, *["starve"] * len(FAULTS)])
        repeater = Repeater(world)
        schedule.topics, schedule.clients = [TOPIC], [HOST]
        found.append((schedule, repeater))
        await create_topic(world, TOPIC)
        running = asyncio.create_task(repeater.run(), name="repeater")
        await _until(running, lambda: len(repeater.offsets) > 10)
        await schedule.play()
        enough = len(repeater.offsets) + 10
        await _until(running, lambda: len(repeater.offsets) > enough)
        running.cancel()
        await asyncio.wait([running])
        records = (await world.read_records(TOPIC, 1))[0]
        assert [int(each.value or b"") for each in records][: len(repeater.offsets)] == list(
            range(len(repeater.offsets))
        ), "each batch is there once, in order"
        repeater.close()

    world = World(seed, CONFIG, brokers=BROKERS, noticed_at_once=seed % 2 == 0)
    try:
        world.play(scenario)
    except BaseException as error:
        for schedule, _ in found:
            error.add_note("the faults: " + "; ".join(schedule.done))
        raise
    return found[0][1]


async def _until(running: "asyncio.Task[Any]", condition: Callable[[], bool]) -> None:
    await until(lambda: running.done() or condition(), within_s=PATIENCE_S)
    if running.done():
        running.result()


@pytest.mark.parametrize("number", seeds(5))
def test_an_acknowledged_batch_sent_again_gets_its_offset_or_waits(number: int) -> None:
    """M1."""
    assert play_repetitions(number).repeated > 0


def test_some_schedules_leave_a_leader_as_the_only_in_sync_replica() -> None:
    assert sum(play_repetitions(number).repeated_below_min for number in range(5)) > 0
