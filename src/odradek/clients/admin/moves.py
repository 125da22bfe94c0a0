"""Replicas that are being copied: to other brokers by reassignments, and to other directories (KIP-113)."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients.admin.health import read_log_dirs
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.clients.admin.admin import Admin

_SAMPLE_S: Final = 1.0
"""The time over which a rate is measured."""


class Move(Struct, frozen=True, kw_only=True):
    """A replica that is copied to a broker, or to a directory of its broker.

    The sizes are in bytes: what is copied, and what there is to copy; the rate is in bytes per second.
    """

    partition: TopicPartition
    broker_id: int
    log_dir: str | None
    copied: int
    total: int
    rate: float | None = None

    @property
    def left(self) -> int:
        """The bytes that are not copied yet."""
        return max(self.total - self.copied, 0)


async def read_moves(admin: "Admin", partitions: Collection[TopicPartition] | None = None) -> list[Move]:
    """Return the moves of `partitions`, or of all, with their rates: takes a second if anything moves."""
    before = {(each.partition, each.broker_id): each for each in await list_moves(admin, partitions)}
    if not before:
        return []
    await asyncio.sleep(_SAMPLE_S)
    moves = await list_moves(admin, sorted({key for key, _ in before}))
    known = [before.get((each.partition, each.broker_id)) for each in moves]
    return [
        each if was is None else replace(each, rate=max(each.copied - was.copied, 0) / _SAMPLE_S)
        for each, was in zip(moves, known, strict=True)
    ]


async def list_moves(admin: "Admin", partitions: Collection[TopicPartition] | None) -> list[Move]:
    """Return the moves of `partitions`, or of all, without their rates."""
    reassigned = await admin.list_partition_reassignments(partitions)
    brokers = [each.broker_id for each in (await admin.describe_cluster()).brokers]
    found = await read_log_dirs(admin, brokers, partitions)
    sizes = {
        (key, broker): size for broker, some in found.items() for each in some or () for key, size in each.sizes.items()
    }
    moves = [
        Move(partition=key, broker_id=broker, log_dir=each.log_dir, copied=size, total=sizes.get((key, broker), 0))
        for broker, some in found.items()
        for each in some or ()
        for key, size in each.future_sizes.items()
    ]
    for key, one in reassigned.items():
        total = max((sizes.get((key, broker), 0) for broker in one.replicas), default=0)
        moves += [
            Move(partition=key, broker_id=broker, log_dir=None, copied=sizes.get((key, broker), 0), total=total)
            for broker in one.adding_replicas
            if broker not in one.removing_replicas
        ]
    return sorted(moves, key=lambda each: (each.partition, each.broker_id))
