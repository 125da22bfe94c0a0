"""Members of real groups."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odradek.clients import Consumer
from odradek.testing import Cluster


@asynccontextmanager
async def reading(kafka: Cluster, topic: str, group: str) -> AsyncIterator[None]:
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
