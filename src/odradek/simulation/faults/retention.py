"""Deletion and compaction of records while they are read and replicated, as when an operator saves disk space."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odradek.clients import Admin
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.faults.schedule import Schedule, is_in_tree
from odradek.simulation.promises import CLIENTS
from odradek.simulation.workloads import compacted, retained


async def shorten_retention(schedule: Schedule, one: int, other: int) -> None:
    """Let brokers delete all segments of `retained` but the active one, or all but the last few bytes."""
    del one, other
    _may_be_deleted(schedule)
    key, value = schedule.chance.choice((("retention.ms", "1"), ("retention.bytes", "1"), ("retention.bytes", "5000")))
    await _set(schedule, retained.TOPIC, {key: value}, {key: "-1"})


async def delete_records(schedule: Schedule, one: int, other: int) -> None:
    """Delete the records of `retained` below the high watermark."""
    del one, other
    _may_be_deleted(schedule)

    async def delete(admin: Admin) -> None:
        await admin.delete_records({TopicPartition(retained.TOPIC, 0): -1})

    if is_in_tree(schedule.world, retained.TOPIC):
        await _call(schedule, delete)


async def force_cleaner(schedule: Schedule, one: int, other: int) -> None:
    """Let the cleaner compact `table` at once, with a new segment each second."""
    del one, other
    wanted = {"min.cleanable.dirty.ratio": "0", "max.compaction.lag.ms": "1", "segment.ms": "1000"}
    usual = {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": str(2**63 - 1), "segment.ms": "5000"}
    await _set(schedule, compacted.TOPIC, wanted, usual)


def _may_be_deleted(schedule: Schedule) -> None:
    for workload in schedule.workloads:
        if isinstance(workload, retained.Retained):
            workload.may_be_deleted = True


async def _set(schedule: Schedule, topic: str, wanted: dict[str, str], usual: dict[str, str]) -> None:
    """Configure a topic, and set the usual values when the faults end."""
    if not is_in_tree(schedule.world, topic):
        return
    resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)

    async def alter(values: dict[str, str], admin: Admin) -> None:
        await admin.alter_configs(
            resource, [Alteration(name=key, operation=AlterOperation.SET, value=value) for key, value in values.items()]
        )

    async def set_back() -> None:
        for _ in range(20):
            if await _call(schedule, lambda admin: alter(usual, admin)):
                return
            await asyncio.sleep(1)

    async def begin_to_set_back() -> None:
        setting_back = asyncio.create_task(set_back(), name=f"usual configuration of {topic}")

        async def is_set_back() -> None:
            await setting_back

        schedule.at_the_end(is_set_back)

    await _call(schedule, lambda admin: alter(wanted, admin))
    schedule.later(begin_to_set_back)


async def _call(schedule: Schedule, call: Callable[[Admin], Awaitable[object]]) -> bool:
    """Call as an operator, and return whether that succeeded."""
    world = schedule.world
    with suppress(OdradekError):
        async with world.admin("operator", **CLIENTS) as admin:
            await call(admin)
            return True
    return False
