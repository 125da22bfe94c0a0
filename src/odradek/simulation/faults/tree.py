"""Faults of the metadata tree and of brokers' sessions with it."""

import asyncio
from contextlib import suppress

from odradek.metadata import paths
from odradek.metadata.store import NoNode
from odradek.simulation.faults.schedule import Schedule
from odradek.stores import MemoryStore


async def disconnect_tree(schedule: Schedule, one: int, other: int) -> None:
    del other
    store = schedule.world.store(one)
    store.disconnect()

    async def reconnect() -> None:
        store.reconnect()

    schedule.later(reconnect)


async def blink(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect a broker from the tree for a short time."""
    del other
    store = schedule.world.store(one)
    if store.is_connected:
        store.disconnect()
        await asyncio.sleep(schedule.chance.random() * schedule.chance.choice((0.01, 0.3, 2.0)))
        store.reconnect()


async def expire(schedule: Schedule, one: int, other: int) -> None:
    del other
    schedule.world.tree.expire(schedule.world.store(one).session_id)


async def depose(schedule: Schedule, one: int, other: int) -> None:
    """Delete `/controller`, which causes an election."""
    del one, other
    with suppress(NoNode):
        await MemoryStore(schedule.world.tree).delete(paths.CONTROLLER)


async def unregister(schedule: Schedule, one: int, other: int) -> None:
    """Delete a broker's registration."""
    del other
    with suppress(NoNode):
        await MemoryStore(schedule.world.tree).delete(paths.broker(one))
