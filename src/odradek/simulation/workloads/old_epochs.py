"""Transactional ids whose producer epochs are almost used up, as after 32,750 transactions."""

import asyncio
from collections.abc import Iterable
from typing import Final

from odradek.broker.transactions.machine.transaction import (
    MAX_EPOCH,
    TransactionMetadata,
    TransactionRecord,
    TransactionRecordCodec,
    TransactionState,
)
from odradek.model import ErrorCode
from odradek.model.names import ADMIN_CLIENT_ID, TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.wire_client import PRODUCE_VERSION, WireClient, produce_body
from odradek.simulation.world import World

_SHARE: Final = 0.25
"""The part of seeds that have such ids."""
_MOST_LEFT: Final = 20


async def maybe_use_up_epochs(world: World, transactional_ids: Iterable[str]) -> None:
    """In some seeds, write ids with high epochs into `__transaction_state`, and restart its coordinator."""
    names = list(transactional_ids)
    chance = world.simulation.entropy(f"epochs of {names}")
    if chance.random() > _SHARE:
        return
    client = await world.client("admin", broker=min(world.running))
    coordinator = await _coordinator(client, names[0])
    now_ms = world.simulation.runtime("admin").clock.now_ms()
    records = []
    for name in names:
        answer = await client.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": 1}, 1)
        metadata = TransactionMetadata(
            transactional_id=name,
            producer_id=answer.producer_id,
            producer_epoch=MAX_EPOCH - 1 - chance.randrange(_MOST_LEFT),
            timeout_ms=60_000,
            state=TransactionState.EMPTY,
            updated_ms=now_ms,
        )
        key, value = TransactionRecordCodec().encode(TransactionRecord(name, metadata))
        records.append((now_ms, key, value, ()))
    client.close()
    await _append(world, coordinator, bytes(encode_batch(records)))
    await world.restart(coordinator)


async def _coordinator(client: WireClient, name: str) -> int:
    while True:
        found = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": [name]}, 4)
        (coordinator,) = found.coordinators
        if coordinator.error_code == ErrorCode.none:
            return int(coordinator.node_id)
        await asyncio.sleep(0.2)


async def _append(world: World, number: int, batch: bytes) -> None:
    leader = await world.client("admin", broker=number)
    # Brokers let the admin client append to internal topics.
    body = produce_body(TRANSACTIONS_TOPIC, batch, timeout_ms=60_000)
    leader.send(ApiKey.PRODUCE, body, PRODUCE_VERSION, client_id=ADMIN_CLIENT_ID)
    written = (await leader.produce_response()).topics[0].partitions[0]
    assert written.error_code == ErrorCode.none, written
    leader.close()
