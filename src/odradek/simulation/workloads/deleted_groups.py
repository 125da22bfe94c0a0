"""An administrator who commits offsets for groups without members, and deletes offsets and groups.

Every listing shows what the acknowledged calls left, also from a new coordinator and after compaction of the internal
topic. After a call that failed, the administrator stops using the group, because the request may still be on its way.
A topic that was deleted and created again has no offsets in the end. In half of the seeds without other workloads,
offsets expire after a minute (KIP-211): from the commit on without a subscriber, else once that has left.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, Final

from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.consumer_group import draw_protocol
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, raise_failures, until

TOPIC: Final = "consulted"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(2)]
_GROUPS: Final = 4
_AGAIN: Final = TopicPartition("again", 0)
_OTHER: Final = TopicPartition("unsubscribed", 0)
_SUBSCRIBER: Final = "subscriber"
_RETENTION_S: Final = 60.0
_UNCERTAIN_S: Final = 10.0
"""Clocks drift, and the coordinator looks for expired offsets each few seconds, if there is one."""


class DeletedGroups(Workload):
    """One administrator of a few groups at a time."""

    config: ClassVar[Mapping[str, str]] = {"offsets.topic.segment.bytes": "4096", "log.cleaner.backoff.ms": "2000"}
    config_alone: ClassVar[Mapping[str, str]] = {
        "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000"
    }  # fmt: skip
    clients: ClassVar[Sequence[str]] = ("registrar",)
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._admin = world.admin("registrar", **CLIENTS)
        self._chance = world.simulation.entropy("registrar")
        self._names, self._offsets = count(), count(1)
        self._known: dict[str, dict[TopicPartition, tuple[int, float]]] = {}
        """The offsets of each group whose calls were all acknowledged, also of deleted groups, and when they were."""
        self._committed_again: list[str] = []
        self._former: list[str] = []
        """Groups with an offset of a topic since whose commit the topic was deleted and created again."""
        self._expires = setup.config.get("offsets.retention.minutes") == "1"
        """Whether offsets expire after `_RETENTION_S`."""
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
        former = await self._remaining(self._former, within_s=_RETENTION_S / 2)
        found = [f"{name} has an offset of a topic that was deleted" for name in former]
        if self._expires and not self.clocks_have_jumped:
            found += await self._until_expired()
        await self._admin.close()
        return found

    async def _until_expired(self) -> list[str]:
        """Let a subscriber stay longer than the retention time of its commits and leave, and let all offsets expire."""
        found = list[str]()
        await create_topic(self.world, _OTHER.topic, 1, replicas=self.setup.replicas)
        settings: Any = {**draw_protocol(self.world.simulation.entropy(_SUBSCRIBER)), **READERS}
        async with self.world.consumer(
            _SUBSCRIBER, TOPIC, group_id=_SUBSCRIBER, enable_auto_commit=False, **settings
        ) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                while not consumer.assignment():
                    await consumer.poll(1_000)
            await consumer.commit({_PLACES[0]: 1, _OTHER: 1})
            committed_s = self.world.now_s
            while self.world.now_s < committed_s + _RETENTION_S + _UNCERTAIN_S:
                await consumer.poll(1_000)
            listed = (await self._admin.list_group_offsets([_SUBSCRIBER]))[_SUBSCRIBER]
            if isinstance(listed, KafkaError) or {*listed} != {_PLACES[0]}:
                found.append(f"a subscriber to {TOPIC} has the offsets {listed} after the time of retention")
        await asyncio.sleep(_RETENTION_S - _UNCERTAIN_S)
        is_classic = settings["group_protocol"] == "classic"  # as in Kafka, others' retention starts at the commit
        if is_classic and not await self._remaining([_SUBSCRIBER], within_s=0.0):
            found.append(f"the offset of {_SUBSCRIBER} has expired {_RETENTION_S - _UNCERTAIN_S:.0f} s after it left")
        left = await self._remaining([_SUBSCRIBER, *self._known], within_s=_RETENTION_S)
        return found + [f"the offsets of {name} do not expire" for name in left]

    async def _remaining(self, names: Sequence[str], within_s: float) -> list[str]:
        """Let virtual time pass until no group of `names` has an offset, and return those that have one then."""
        deadline_s = self.world.now_s + within_s
        while names:
            with suppress(OdradekError):
                listed = await self._admin.list_group_offsets(names)
                if not any(isinstance(each, KafkaError) for each in listed.values()):
                    remaining = [name for name, each in listed.items() if each]
                    if not remaining or self.world.now_s >= deadline_s:
                        return remaining
            await asyncio.sleep(1.0)
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
                deeds = [self._commit] * 3 + [self._delete_offset, self._delete, self._commit_again, self._renew]
                await self._chance.choice(deeds)(name)
            except OdradekError:
                self._known.pop(name, None)
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.0)))
            if self._known:
                await self._look(self._chance.choice(list(self._known)))

    async def _commit(self, name: str) -> None:
        place, offset = self._chance.choice(_PLACES), next(self._offsets)
        await self._admin.alter_group_offsets(name, {place: offset})
        self._known.setdefault(name, {})[place] = offset, self.world.now_s

    async def _delete_offset(self, name: str) -> None:
        if place := next(iter(self._known.get(name, ())), None):
            await self._admin.delete_group_offsets(name, [place])
            del self._known[name][place]

    async def _delete(self, name: str) -> None:
        if self._known.get(name):
            await self._admin.delete_groups([name])
            self._known[name] = {}

    async def _commit_again(self, name: str) -> None:
        """Commit an offset of a topic that will be deleted and created again, for a group of its own."""
        with suppress(KafkaError):
            await self._admin.create_topic(_AGAIN.topic, partitions=1, replication_factor=self.setup.replicas)
        name = f"former {name} {next(self._offsets)}"
        await self._admin.alter_group_offsets(name, {_AGAIN: 1})
        self._committed_again.append(name)

    async def _renew(self, name: str) -> None:
        del name
        before, self._committed_again = self._committed_again, []
        if before:
            await self._admin.delete_topics([_AGAIN.topic])
            await self._admin.create_topic(_AGAIN.topic, partitions=1, replication_factor=self.setup.replicas)
            self._former += before

    async def _look(self, name: str) -> bool:
        """Return whether a coordinator lists the offsets of a group. Raise `BrokenPromiseError` for other offsets."""
        try:
            listed = (await self._admin.list_group_offsets([name]))[name]
        except OdradekError:
            return False
        if isinstance(listed, KafkaError):
            return False
        self._listings += 1
        found = {place: each.offset for place, each in listed.items()}
        old_s = self.world.now_s - (_RETENTION_S - _UNCERTAIN_S if self._expires else float("inf"))
        for place, (offset, since_s) in self._known[name].items():
            if found.pop(place, offset if since_s < old_s or self.clocks_have_jumped else None) != offset:
                raise BrokenPromiseError(f"the group {name} has {listed}, and not {self._known[name]}")
        if found:
            raise BrokenPromiseError(f"the group {name} has {listed}, and not only {self._known[name]}")
        return True
