"""An administrator who commits offsets for groups without members, and deletes offsets and groups.

Every listing shows what the acknowledged calls left, also from a new coordinator and after compaction of the internal
topic. After a call that failed, the administrator stops using the group, because the request may still be on its way.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import ClassVar, Final

from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, raise_failures, until

TOPIC: Final = "consulted"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(2)]
_GROUPS: Final = 4


class DeletedGroups(Workload):
    """One administrator of a few groups at a time."""

    config: ClassVar[Mapping[str, str]] = {"offsets.topic.segment.bytes": "4096", "log.cleaner.backoff.ms": "2000"}
    clients: ClassVar[Sequence[str]] = ("registrar",)
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._admin = world.admin("registrar", **CLIENTS)
        self._chance = world.simulation.entropy("registrar")
        self._names, self._offsets = count(), count(1)
        self._known: dict[str, dict[TopicPartition, int]] = {}
        """The offsets of each group whose calls were all acknowledged, also of deleted groups."""
        self._listings = 0
        self._is_stopping = False
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, and return after a few listings."""
        await create_topic(self.world, TOPIC, len(_PLACES), replicas=self.setup.replicas)
        self._working = self.world.spawn("registrar", self._work())
        await until(self._has_listed, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Stop, and list every group once more."""
        assert self._working is not None
        self._is_stopping = True
        await asyncio.wait_for(self._working, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            for name in self._known:
                while not await self._look(name):  # noqa: ASYNC110 - no polling: each look sends a request
                    await asyncio.sleep(1.0)
        await self._admin.close()
        return []

    def _has_listed(self) -> bool:
        assert self._working is not None
        raise_failures([self._working])
        return self._listings > 2

    async def _work(self) -> None:
        await self._admin.start()
        while not self._is_stopping:
            name = f"group-{next(self._names)}"
            if len(self._known) >= _GROUPS and self._chance.random() < 0.8:
                name = self._chance.choice(list(self._known))
            try:
                await self._chance.choice((self._commit, self._commit, self._delete_offset, self._delete))(name)
            except OdradekError:
                self._known.pop(name, None)
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.0)))
            if self._known:
                await self._look(self._chance.choice(list(self._known)))

    async def _commit(self, name: str) -> None:
        place, offset = self._chance.choice(_PLACES), next(self._offsets)
        await self._admin.alter_group_offsets(name, {place: offset})
        self._known.setdefault(name, {})[place] = offset

    async def _delete_offset(self, name: str) -> None:
        if place := next(iter(self._known.get(name, ())), None):
            await self._admin.delete_group_offsets(name, [place])
            del self._known[name][place]

    async def _delete(self, name: str) -> None:
        if self._known.get(name):
            await self._admin.delete_groups([name])
            self._known[name] = {}

    async def _look(self, name: str) -> bool:
        """Return whether a coordinator lists the offsets of a group. Raise `BrokenPromiseError` for other offsets."""
        try:
            listed = (await self._admin.list_group_offsets([name]))[name]
        except OdradekError:
            return False
        if isinstance(listed, KafkaError):
            return False
        self._listings += 1
        if (found := {place: each.offset for place, each in listed.items()}) != self._known[name]:
            raise BrokenPromiseError(f"the group {name} has the offsets {found}, and not {self._known[name]}")
        return True
