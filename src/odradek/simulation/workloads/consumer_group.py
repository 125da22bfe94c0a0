"""Consumers of one group that come and go, and the checks of what they read and commit.

The seed draws the protocol, the assignor, whether members are static, how they commit (automatically, their positions,
or offsets of records), how many records a poll returns, and how long members may work between two polls. A member
processes what a poll has returned, perhaps for longer than `auto.commit.interval.ms`, and may die in the middle. The
promises:

- In the end, some member has processed every acknowledged record, and each partition has one owner, also one that the
  topic gets meanwhile or then. In some seeds, one member then polls no more, and the others get its partitions after
  `max.poll.interval.ms`; those of a static member of a classic group when its session has ended, too.
- Between two rebalances, a member reads each partition in order, without gaps.
- With the consumer protocol, a coordinator gives a partition to a member only after the former owner has revoked it,
  and refuses requests with an epoch that the member does not have.
- A commit is refused if a higher offset of the partition was acknowledged before the commit was sent, because the
  member has lost the partition.
- A fetched offset is not below a commit that was acknowledged before the request, and no request is invalid.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Final
from uuid import UUID

from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup as CoordinatedGroup
from odradek.clients import Consumer
from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.histories import History, verdict
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.feeder import PARTITIONS, Feeder
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "grouped"
GROUP: Final = "consumers"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


SHORT_SESSIONS: Final = {
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "2000",
}
"""Broker configuration with which the partitions of a dead member soon have another owner."""


def draw_protocol(chance: Random) -> dict[str, Any]:
    """Return the protocol of a group, with the assignor of the classic one, as settings of its consumers."""
    if chance.random() < 0.5:
        return {"group_protocol": "consumer"}
    assignor = chance.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
    return {"group_protocol": "classic", "partition_assignment_strategy": (assignor,)}


class CommitHistory:
    """The records that members read, and the acknowledged commits, checked as they come."""

    def __init__(self) -> None:
        self.records = History()
        self.read: set[bytes] = set()
        """The values of processed records."""
        self.committed: dict[TopicPartition, int] = defaultdict(int)

    def least(self) -> dict[TopicPartition, int]:
        return dict(self.committed)

    def commit(self, offsets: Mapping[TopicPartition, int], least: Mapping[TopicPartition, int], host: str) -> None:
        """Note an acknowledged commit; `least` was committed when it was sent."""
        for place, offset in offsets.items():
            if offset < least.get(place, 0):
                raise BrokenPromiseError(f"{host} committed {offset} of {place} after {least[place]} was committed")
            self.committed[place] = max(self.committed[place], offset)

    def fetch(self, offsets: Mapping[TopicPartition, int], least: Mapping[TopicPartition, int], host: str) -> None:
        """Note fetched offsets; `least` was committed when they were requested."""
        for place, offset in least.items():
            if offsets.get(place, 0) < offset:
                raise BrokenPromiseError(f"{host} got {offsets.get(place, 0)} of {place}, and {offset} is committed")


class _DeathError(Exception):
    """The process of a member ends."""


class GroupMember:
    """A member on its own host: it joins, reads and commits, and leaves or vanishes after a while."""

    def __init__(self, world: World, host: str, history: CommitHistory, settings: Mapping[str, Any]) -> None:
        self.host = host
        self.is_calm = False
        """Whether it stays in the group."""
        self.hangs = False
        """Whether it polls no more, while its heartbeats go on."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self._world, self._history, self._settings = world, history, settings
        self._chance = world.simulation.entropy(host)
        self._deaths = world.simulation.entropy(f"deaths of {host}")
        self.commits_positions = self._deaths.random() < 0.5
        """Whether it commits its positions, and not the offsets of records."""
        self.has_pattern = self._deaths.random() < 0.25
        """Whether it subscribes to a regular expression."""
        self._reading: dict[TopicPartition, str] = {}
        """The name of the reading of each partition, which a rebalance ends."""
        self._readings = 0

    async def live(self) -> None:
        """Run one consumer after the other, until cancelled."""
        while True:
            consumer = self._world.consumer(self.host, group_id=GROUP, **self._settings, **READERS)
            self._reading.clear()
            if self.has_pattern:
                consumer.subscribe(pattern=f"{TOPIC}|no-topic", on_partitions_revoked=self._forget)
            else:
                consumer.subscribe((TOPIC,), on_partitions_revoked=self._forget)
            try:
                await consumer.start()
                await self._take_part(consumer)
            except _DeathError:
                self._world.simulation.kill(self.host)
                await consumer._cluster.close()  # a process that dies neither commits nor leaves its group
            except (OdradekError, TimeoutError) as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.invalid_request:
                    raise BrokenPromiseError(f"{self.host} has sent an invalid request: {error}") from error
            finally:
                await consumer.close()
            self.owned = frozenset()
            await asyncio.sleep(self._chance.choice((0.1, 2.0)))

    async def _take_part(self, consumer: Consumer) -> None:
        polls = self._chance.choice((20, 200))
        while polls > 0 or self.is_calm:
            polls -= 1
            if self.hangs:
                self.owned = frozenset()
                await asyncio.get_running_loop().create_future()
            records = await consumer.poll(1_000)
            self.owned = frozenset(consumer.assignment())
            self._note(records)
            if records:
                await self._process(records)
                if not self._settings["enable_auto_commit"]:
                    await self._commit(consumer, {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records})
            if self._chance.random() < 0.05:
                await self._look(consumer)
            if not self.is_calm and self._chance.random() < 0.02:
                await asyncio.sleep(self._chance.choice((1.0, 12.0)))

    async def _process(self, records: Sequence[ConsumerRecord]) -> None:
        """Process records for a while, or die before that is done."""
        chance = self._deaths.random()
        if not self.is_calm and chance < 0.2:
            await asyncio.sleep(self._deaths.choice((0.05, 1.0)))
            if chance < 0.06:
                raise _DeathError
        self._history.read |= {record.value or b"" for record in records}

    def _forget(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._reading.pop(place, None)

    def _note(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            place, value = TopicPartition(record.topic, record.partition), record.value or b""
            if place not in self._reading:
                self._readings += 1
                self._reading[place] = f"{self.host}, assignment {self._readings}"
            self._history.records.poll(self._reading[place], place, record.offset, value)

    async def _commit(self, consumer: Consumer, offsets: dict[TopicPartition, int]) -> None:
        least = self._history.least()
        try:
            await consumer.commit(None if self.commits_positions else offsets)
        except OdradekError:
            return  # the member has lost the partitions, or the outcome is unknown
        self._history.commit(offsets, least, self.host)

    async def _look(self, consumer: Consumer) -> None:
        least = self._history.least()
        found = await consumer.committed(*sorted({*_PLACES, *least}))
        offsets = {place: 0 if known is None else known.offset for place, known in found.items()}
        self._history.fetch(offsets, least, self.host)


class ConsumerGroup(Workload):
    """A producer, and two or three consumers of one group, of the classic or the consumer protocol."""

    config: ClassVar[Mapping[str, str]] = SHORT_SESSIONS
    clients: ClassVar[Sequence[str]] = ("consumer-0", "consumer-1")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        chance = world.simulation.entropy("consumer group")
        settings: dict[str, Any] = {"enable_auto_commit": chance.random() < 0.25}
        settings |= draw_protocol(chance)
        if settings["group_protocol"] == "classic":
            settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
        self._has_hung_member = chance.random() < 0.5
        commits = world.simulation.entropy("commits")
        settings["auto_commit_interval_ms"] = commits.choice((5_000, 200))
        settings["max_poll_records"] = commits.choice((500, 1, 3))
        settings["max_poll_interval_ms"] = 8_000 if self._has_hung_member else chance.choice((300_000, 8_000))
        self._history = CommitHistory()
        self._feeder = Feeder(world, "feeder", TOPIC, self._history.records)
        count, is_static = chance.choice((2, 3)), chance.random() < 0.3
        self._members = [
            GroupMember(world, host, self._history, settings | ({"group_instance_id": host} if is_static else {}))
            for host in (f"consumer-{number}" for number in range(count))
        ]
        self._chance_of_extension = world.simulation.entropy("extension")
        self._lives: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the clients, and return when records have been read."""
        await create_topic(self.world, TOPIC, PARTITIONS)
        await self._feeder.start()
        self._lives = [self.world.spawn(each.host, each.live()) for each in self._members]
        self._lives.append(asyncio.create_task(self._watch_owners(), name="owners of partitions"))
        self._lives.append(self.world.spawn("forger", self._forge()))
        if self._chance_of_extension.random() < 0.4:
            self._lives.append(asyncio.create_task(self._extend_later(), name="extension of the topic"))
        await until(self._has_read, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Send no more, and wait until all is read and every partition has one owner."""
        for member in self._members:
            member.is_calm = True
        self._members[-1].hangs = self._has_hung_member
        await self._feeder.stop()
        try:
            await until(self._is_done, within_s=PATIENCE_S, each_s=0.1)
            if self._feeder.partitions == PARTITIONS:  # no member comes or goes any more
                await self._extend()
                await until(self._is_done, within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            unread = sorted(self._feeder.sent.keys() - self._history.read)[:5]
            owners = {each.host: sorted(place.partition for place in each.owned) for each in self._members}
            return [f"the group of consumers does not read {unread}; its members own {owners}"]
        await cancel(*self._lives)
        for number, records in (await self.world.read_records(TOPIC, self._feeder.partitions)).items():
            log = [(record.offset, record.value or b"") for record in records]
            self._history.records.audit(TopicPartition(TOPIC, number), log)
        return verdict(self._history.records).splitlines()

    async def _extend_later(self) -> None:
        await asyncio.sleep(self._chance_of_extension.uniform(0.0, 20.0))
        await self._extend()

    async def _extend(self) -> None:
        """Add a partition to the topic."""
        while self._feeder.partitions == PARTITIONS:
            with suppress(OdradekError):
                async with self.world.admin(**CLIENTS) as admin:
                    if len((await admin.describe_topics([TOPIC]))[TOPIC].partitions) == PARTITIONS:
                        await admin.create_partitions(TOPIC, PARTITIONS + 1)
                    self._feeder.partitions = PARTITIONS + 1
            await asyncio.sleep(1)

    def _coordinated(self) -> Iterator[tuple[int, CoordinatedGroup]]:
        """Yield the brokers that coordinate the group, if it is of the consumer protocol, and their states of it."""
        for number, broker in self.world.running.items():
            for machine in broker.groups.machines(only_active=True):
                group = machine.groups.by_id.get(GROUP)
                if isinstance(group, CoordinatedGroup):
                    yield number, group

    async def _watch_owners(self) -> None:
        while True:
            for number, group in self._coordinated():
                if place := _owned_twice(group):
                    raise BrokenPromiseError(f"broker {number} gave partition {place[1]} to two members")
            await asyncio.sleep(0.1)

    async def _forge(self) -> None:
        """Send requests with the id of a member and an epoch that it does not have."""
        chance = self.world.simulation.entropy("forger")
        while True:
            await asyncio.sleep(chance.choice((0.5, 3.0)))
            for number, group in self._coordinated():
                for member_id, member in sorted(group.members.items())[:1]:
                    with suppress(OdradekError, OSError, TimeoutError):
                        await self._forge_epoch(number, member_id, member.epoch + 1_000)
                break

    async def _forge_epoch(self, number: int, member_id: str, epoch: int) -> None:
        """Raise `BrokenPromiseError` if a broker accepts a heartbeat or a commit with this epoch."""
        who: dict[str, Any] = {"group_id": GROUP, "member_id": member_id}
        unchanged = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
        place = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
        topics = [{"name": TOPIC, "partitions": [place]}]
        async with asyncio.timeout(5):
            client = await self.world.client("forger", broker=number)
            try:
                message = who | unchanged | {"member_epoch": epoch}
                heartbeat = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, 0)
                commit = {"generation_id_or_member_epoch": epoch, "group_instance_id": None, "topics": topics}
                committed = await client.ask(ApiKey.OFFSET_COMMIT, who | commit, 9)
            finally:
                client.transport.abort()
        for what, code in (
            ("heartbeat", heartbeat.error_code),
            ("commit", committed.topics[0].partitions[0].error_code),
        ):
            if code == ErrorCode.none:
                raise BrokenPromiseError(f"broker {number} accepted a {what} with the epoch {epoch} of {member_id}")

    def _has_read(self) -> bool:
        raise_failures(self._lives)
        return bool(self._history.read)

    def _is_done(self) -> bool:
        raise_failures(self._lives)
        owned = sorted(place for each in self._members for place in each.owned)
        places = [TopicPartition(TOPIC, number) for number in range(self._feeder.partitions)]
        return self._feeder.sent.keys() <= self._history.read and owned == places


def _owned_twice(group: CoordinatedGroup) -> tuple[UUID, int] | None:
    """Return a partition that two members have, or have not revoked yet; None if there is none."""
    seen = set[tuple[UUID, int]]()
    for member in group.members.values():
        for some in (member.assigned, member.revoking):
            for place in ((topic_id, number) for topic_id, numbers in some.items() for number in sorted(numbers)):
                if place in seen:
                    return place
                seen.add(place)
    return None
