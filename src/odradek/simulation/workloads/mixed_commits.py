"""Plain and transactional commits of one group's offsets that overlap: a part of the workload `transactions`.

Two transactions and an administrator commit offsets of the same partitions, and the offsets are listed all the time.
`checks.coordinator_replies` compares each listing with the coordinator's log: the commit with the latest record counts.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

from odradek.clients import Admin, Producer
from odradek.clients.group_offsets import ConsumerGroupMetadata
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS
from odradek.simulation.world import World

HOST: Final = "mixer"
GROUP: Final = "mixed"
_TRANSACTIONS: Final = 2


async def mix_commits(world: World, places: list[TopicPartition]) -> None:
    """Begin and end transactions, commit and list offsets, until cancelled."""
    while True:
        producers: list[Producer] = []
        try:
            async with world.admin(HOST, **CLIENTS) as admin:
                for number in range(_TRANSACTIONS):
                    settings: Any = {"transactional_id": f"mixed-{number}", "transaction_timeout_ms": 8_000, **CLIENTS}
                    producers.append(world.producer(HOST, **settings))
                    await producers[-1].start()
                await _mix(world, admin, producers, places)
        except OdradekError:
            await asyncio.sleep(1.0)
        finally:
            for producer in producers:
                with suppress(OdradekError):
                    await producer.close()


async def _mix(world: World, admin: Admin, producers: list[Producer], places: list[TopicPartition]) -> None:
    chance = world.simulation.entropy(f"mixed commits at {world.now_s}")
    open_ones: dict[Producer, None] = {}
    offset = 0
    while True:
        place, producer = chance.choice(places), chance.choice(producers)
        offset += 1
        if chance.random() < 0.4:
            await admin.alter_group_offsets(GROUP, {place: offset})
        elif producer not in open_ones:
            await producer.begin_transaction()
            open_ones[producer] = None
            await producer.send_offsets({place: offset}, ConsumerGroupMetadata(group_id=GROUP))
        else:
            del open_ones[producer]
            await (producer.commit_transaction if chance.random() < 0.7 else producer.abort_transaction)()
        await admin.list_group_offsets([GROUP])
        await asyncio.sleep(chance.choice((0.0, 0.2, 1.0)))
