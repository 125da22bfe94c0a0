"""KIP-392 on virtual time: a consumer reads the replica in its rack while brokers die, lag, and leave the ISR.

`ODRADEK_SEEDS=1000 pytest tests/broker/replication/test_readers_of_followers_in_virtual_time.py` tries so many.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.model import TopicPartition
from odradek.simulation.promises import BROKERS
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.simulation.setup import CONFIG
from odradek.simulation.workloads.records import TOPIC
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World
from tests.world.rack_world import RackWorld
from tests.world.sampling import assert_no_findings, seeds
from tests.world.scenes import in_world

pytestmark = pytest.mark.long


class RackConsumers(RackWorld):
    """Each broker has a rack of its own, and so have the consumers that read."""

    def __init__(self, seed: int, config: Mapping[str, str], **options: Any) -> None:
        super().__init__(seed, config, **options)
        self._rack = f"rack-{seed % BROKERS}"

    def consumer(self, host: str, *topics: str, **settings: Any) -> Consumer:
        rack = {"client_rack": self._rack} if host.startswith("reader") else {}  # not the auditor
        return super().consumer(host, *topics, **settings | rack)


@pytest.mark.parametrize("number", seeds(4))
def test_a_reader_of_followers_skips_and_repeats_nothing_under_faults(number: int) -> None:
    """M1, M9."""
    result = run_seed(SeedPlan(seed=number, workloads=("records",)), new_world=RackConsumers)
    assert_no_findings(result)


@in_world(CONFIG, seed=1, brokers=BROKERS, of=RackConsumers)
async def test_without_faults_the_reader_reads_what_followers_send(world: World) -> None:
    """M9. The world above is about followers: those in the reader's rack send what it reads."""
    await create_topic(world, TOPIC)
    places = [TopicPartition(TOPIC, number) for number in range(2)]
    async with world.producer("writer") as producer, world.consumer("reader") as consumer:
        consumer.assign(places)
        for number in range(10):
            await (await producer.send(TOPIC, b"%d" % number, partition=number % 2))
        seen = 0
        while seen < 10:
            seen += len(await consumer.poll(1_000))
    traffic = {number: broker.partitions.traffic.get(TOPIC) for number, broker in world.running.items()}
    sent = {number: each.bytes_out for number, each in traffic.items() if each is not None}
    assert [number for number, size in sent.items() if size] == [1], "rack-1 is the reader's"
