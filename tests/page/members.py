"""Members of real groups."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from odradek.clients import Admin, Consumer
from odradek.model import KafkaError


class Servers(Protocol):
    """A cluster or a broker."""

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        ...


@asynccontextmanager
async def reading(kafka: Servers, topic: str, group: str) -> AsyncIterator[None]:
    """A member of a group that reads until the block ends."""
    servers, client_id = kafka.bootstrap_servers, f"reader-{group}"
    async with Consumer(
        topic, bootstrap_servers=servers, group_id=group, client_id=client_id, heartbeat_interval_ms=100
    ) as consumer:

        async def read() -> None:
            while True:
                await consumer.poll(timeout_ms=100)

        task = asyncio.create_task(read())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def only_member(kafka: Servers, group: str) -> str:
    """Return the id of a group's only member when it has its partitions."""
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin, asyncio.timeout(30):
        while True:
            described = (await admin.describe_groups([group]))[group]
            if isinstance(described, KafkaError) or described.group_state != "Stable":
                continue
            if described.members[0].assignment:
                return described.members[0].member_id
