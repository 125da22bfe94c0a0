"""The base of workloads: configuration, clients and checks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from odradek.model import KafkaError, UnavailableError
from odradek.simulation.promises import BROKERS
from odradek.simulation.setup import Setup
from odradek.simulation.world import World


class Workload(ABC):
    """Clients of one kind on the hosts `clients`, whose topics `topics` must be whole before some faults.

    Clients start within `world.simulation.on(host)`, or as tasks of `world.spawn`, so that faults can pause them.
    """

    config: ClassVar[Mapping[str, str]] = {}
    """Broker configuration that it needs."""
    config_alone: ClassVar[Mapping[str, str]] = {}
    """Broker configuration that other workloads would not bear: half of the seeds without them have it."""
    clients: ClassVar[Sequence[str]] = ()
    topics: ClassVar[Sequence[str]] = ()

    def __init__(self, world: World, setup: Setup) -> None:
        self.world = world
        self.setup = setup
        self.clocks_have_jumped = False
        """Whether a fault has set a wall clock, so that times by which records are deleted mean nothing."""

    @abstractmethod
    async def start(self) -> None:
        """Start the clients, and return when the load is running."""

    @abstractmethod
    async def finish(self) -> list[str]:
        """End the load after the faults have ended, and return the findings of its checks."""


async def create_topic(
    world: World, topic: str, partitions: int = 2, *, replicas: int = BROKERS, **configs: str
) -> None:
    """Create a topic, with a replica on each broker if they are fewer, as soon as there are enough brokers."""
    replicas = min(replicas, len(world.hosts))
    async with world.admin() as admin:
        for remaining in reversed(range(100)):
            try:
                await admin.create_topic(topic, partitions=partitions, replication_factor=replicas, configs=configs)
                return
            except (KafkaError, UnavailableError):
                if not remaining:
                    raise
                await asyncio.sleep(0.1)
