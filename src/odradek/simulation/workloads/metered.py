"""A client whose quota changes: a part of the workload `security`.

Once every running broker knows a quota that the client exceeds, responses have throttle times; once every broker knows
that it is gone, none has.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from odradek.broker.lifecycle import Broker
from odradek.clients import Admin
from odradek.model import OdradekError, TopicPartition
from odradek.security.quotas import PRODUCE, QuotaEntity
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World

HOST: Final = "metered"
_ENTITIES: Final = (QuotaEntity(user="application", client_id=HOST), QuotaEntity(client_id=HOST))
_LOW: Final = 500.0
"""A quota in bytes a second; a broker counts those of the last 11 s."""
_VALUE: Final = bytes(1_000)
_REQUESTS: Final = 15
_ANSWER_S: Final = 10.0


class Metered:
    """One client, which writes to `place`; `by_admin` and `is_applied` are those of `Security`."""

    def __init__(
        self,
        world: World,
        place: TopicPartition,
        by_admin: Callable[[Callable[[Admin], Any]], Awaitable[None]],
        is_applied: Callable[[Callable[[Broker], bool]], Awaitable[bool]],
    ) -> None:
        self._world, self._place = world, place
        self._by_admin, self._is_applied = by_admin, is_applied
        self._chance = world.simulation.entropy(HOST)
        self._clients: dict[int, WireClient] = {}
        """Its connections, which outlive the changes: what a broker remembers of them must change, too."""

    async def run(self) -> None:
        """Set a low quota, remove it, and write after each change, until cancelled."""
        while True:
            entity = self._chance.choice(_ENTITIES)
            for quota in self._chance.choice(((_LOW, None), (_LOW, 1e9, None))):
                await self._change(entity, quota)
            await asyncio.sleep(self._chance.choice((0.0, 2.0, 8.0)))

    async def _change(self, entity: QuotaEntity, quota: float | None) -> None:
        """Change the quota, and write once every running broker knows that."""
        wanted = {} if quota is None else {PRODUCE: str(int(quota))}

        def is_known(broker: Broker) -> bool:
            return dict(broker.image.quota_configs.get(entity, {})) == wanted

        await self._by_admin(lambda admin: admin.alter_client_quotas(entity, {PRODUCE: quota}))
        with suppress(OdradekError, OSError, TimeoutError):
            if await self._is_applied(is_known):
                async with asyncio.timeout(_ANSWER_S):
                    await self._write(quota)

    async def _write(self, quota: float | None) -> None:
        """Write until a response has a throttle time. Raise `BrokenPromiseError` if it should not, or none has."""
        leaders = [number for number, each in self._world.running.items() if each.partitions.get(self._place)]
        if not leaders:
            return
        is_limited, number = quota == _LOW, leaders[0]
        try:
            if number not in self._clients:
                self._clients[number] = await self._world.client(HOST, broker=number)
            for _ in range(_REQUESTS if is_limited else 2):
                if await self._is_throttled(self._clients[number]):
                    if not is_limited:
                        raise BrokenPromiseError(f"broker {number} throttles a client whose quota is {quota}")
                    return
        except (OdradekError, OSError, TimeoutError, asyncio.CancelledError):
            if (client := self._clients.pop(number, None)) is not None:
                client.transport.abort()
            raise
        if is_limited:
            raise BrokenPromiseError(f"broker {number} does not throttle a client beyond its quota")

    async def _is_throttled(self, client: WireClient) -> bool:
        client.send_produce(self._place.topic, self._world.batch(_VALUE), acks=1)
        return bool((await client.produce_response()).throttle_time_ms)
