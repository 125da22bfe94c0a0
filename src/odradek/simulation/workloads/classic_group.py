"""Members of a classic group that encode every request themselves, and the checks of the answers that they get.

The promises:

- A generation has one leader and one list of members, and the generations of a member never go back.
- In a generation, a partition has one owner, and a member has one assignment.
- An offset that OffsetFetch returns is not below a commit that was acknowledged, or an offset that was returned, before
  the request was sent.
- A commit that is sent after a later generation was announced is refused.
- A static member (KIP-345) that starts again keeps its place, and a commit by its former member id is refused.
- A coordinator that has answered a member's heartbeat knows it for a session, also if it joins again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from odradek.model import ErrorCode, OdradekError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.simulation.promises import PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.wire_client import WireClient
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

GROUP: Final = "classic"
TOPIC: Final = "shared"
PARTITIONS: Final = 4
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
_PATIENCE_S: Final = 30.0
_KNOWN_S: Final = 5.0
"""Virtual seconds after a request for which a member is known: less than a session, whatever its clock."""
_JOIN_AGAIN: Final = {ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.member_id_required}


class GroupHistory:
    """The answers that members got, checked as they come."""

    def __init__(self) -> None:
        self.generations: dict[int, tuple[str, frozenset[str]]] = {}
        self.owners: dict[int, dict[int, str]] = {}
        self.acknowledged = dict.fromkeys(range(PARTITIONS), -1)
        self.shown = dict.fromkeys(range(PARTITIONS), -1)
        self.counters = dict.fromkeys(range(PARTITIONS), 0)
        self.last_generation = 0
        self.instances: list[str] = []
        """The group instance ids of static members, whose member ids change."""

    def joined(self, generation: int, leader: str, members: frozenset[str]) -> None:
        leader, members = self._identity(leader), frozenset(map(self._identity, members))
        known_leader, known_members = self.generations.setdefault(generation, (leader, members))
        if known_leader != leader:
            raise BrokenPromiseError(f"generation {generation} is led by {known_leader} and by {leader}")
        if members and known_members and members != known_members:
            raise BrokenPromiseError(f"generation {generation} has the members {known_members} and {members}")
        if members:
            self.generations[generation] = leader, members
        self.last_generation = max(self.last_generation, generation)

    def assigned(self, generation: int, member: str, partitions: frozenset[int]) -> None:
        """Note an answer to SyncGroup."""
        member = self._identity(member)
        owners = self.owners.setdefault(generation, {})
        had = {number for number, owner in owners.items() if owner == member}
        if had and had != partitions:
            raise BrokenPromiseError(f"{member} was given {had}, then {partitions} in generation {generation}")
        for number in partitions:
            if owners.setdefault(number, member) != member:
                raise BrokenPromiseError(f"{owners[number]} and {member} own {number} in generation {generation}")

    def committed(self, partition: int, offset: int, generation: int, last_generation: int) -> None:
        """Note a commit of `generation` that was sent when `last_generation` had been announced."""
        if generation < last_generation:
            raise BrokenPromiseError(f"a commit of generation {generation} after {last_generation} was accepted")
        self.acknowledged[partition] = max(self.acknowledged[partition], offset)

    def fetched(self, partition: int, offset: int, least: int) -> None:
        """Note an answer to OffsetFetch; `least` is the result of `least` when the request was sent."""
        if offset < least:
            raise BrokenPromiseError(f"partition {partition} is at {offset} and was at {least}")
        self.shown[partition] = max(self.shown[partition], offset)

    def _identity(self, member_id: str) -> str:
        """Return what stays the same when a static member starts again: its member ids begin with its instance id."""
        return next((each for each in self.instances if member_id.startswith(f"{each}-")), member_id)

    def least(self, partition: int) -> int:
        """Return the lowest offset that a later OffsetFetch may return."""
        return max(self.acknowledged[partition], self.shown[partition])


class Actor:
    """A member on its own host, which does what the seed says. With `instance`, it is a static member."""

    def __init__(self, world: World, name: str, history: GroupHistory, instance: str | None = None) -> None:
        self.name = name
        self.is_calm = False
        """Whether it does nothing but stay in the group."""
        self.is_doomed = False
        """Whether it joins again, and dies when it has its assignment."""
        self.is_dead = False
        self.owned: frozenset[int] = frozenset()
        self.generation = -1
        self._world = world
        self._history = history
        self._chance = world.simulation.entropy(name)
        self._instance = instance
        self._member_id = self._last_id = self._former_id = ""
        self._known_s = float("-inf")
        """When it sent the last heartbeat, on this connection, that was answered without an error."""
        self._topics = 0
        self._client: WireClient | None = None

    async def live(self) -> None:
        """Join, and join again whenever that is needed, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._connect()
                await self._take_part()
            except (OdradekError, OSError, TimeoutError, asyncio.CancelledError) as error:
                self._drop()
                if isinstance(error, asyncio.CancelledError):
                    raise
            await asyncio.sleep(self._chance.choice((0.05, 0.3)))

    def _drop(self) -> None:
        self._known_s = float("-inf")
        if self._client is not None:
            self._client.transport.abort()
            self._client = None

    async def _connect(self) -> None:
        while self._client is None:
            number = self._chance.choice(sorted(self._world.running) or [0])
            client = await self._world.client(self.name, broker=number)
            found = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]}, 4)
            (coordinator,) = found.coordinators
            client.transport.abort()
            if coordinator.error_code == ErrorCode.none and coordinator.node_id in self._world.running:
                self._client = await self._world.client(self.name, broker=coordinator.node_id)
            else:
                await asyncio.sleep(0.2)

    async def _ask(self, key: ApiKey, message: dict[str, Any], version: int) -> Any:
        assert self._client is not None
        async with asyncio.timeout(_PATIENCE_S):
            return await self._client.ask(key, message, version)

    def _known(self, error: ErrorCode) -> ErrorCode:
        """Return the error of a response. Raise `BrokenPromiseError` if the coordinator forgot the member too early."""
        if error is ErrorCode.unknown_member_id and self._world.now_s < self._known_s + _KNOWN_S:
            raise BrokenPromiseError(f"{self.name} was a member at {self._known_s:.2f} s, and is unknown")
        return error

    async def _take_part(self) -> None:
        while True:
            error = await self._join_and_sync()
            if self.is_doomed and error is ErrorCode.none:
                self.is_dead = True
                await asyncio.get_running_loop().create_future()
            while error is ErrorCode.none and not self.is_doomed:
                await asyncio.sleep(self._chance.choice((0.1, 0.5, 1.0)))
                error = await (self._beat() if self.is_calm else self._act())
            if self.is_doomed:
                self._topics = 1 - self._topics  # so that it waits for an assignment
            if error is ErrorCode.unknown_member_id:
                self._member_id = ""
            elif error not in {*_JOIN_AGAIN, ErrorCode.none}:
                raise OdradekError(error.name)

    async def _join_and_sync(self) -> ErrorCode:
        answer = await self._ask(ApiKey.JOIN_GROUP, self._join_message(), 5)
        error = self._known(ErrorCode(answer.error_code))
        if error in {ErrorCode.none, ErrorCode.member_id_required}:
            self._member_id = answer.member_id
        if error is not ErrorCode.none:
            return error
        if answer.member_id != self._last_id:
            self._former_id, self._last_id = self._last_id, answer.member_id
        members = frozenset(each.member_id for each in answer.members)
        self._history.joined(answer.generation_id, answer.leader, members)
        if answer.generation_id < self.generation:
            raise BrokenPromiseError(f"{self.name} was in {self.generation} and is in {answer.generation_id}")
        self.generation = answer.generation_id
        return await self._sync(sorted(members))

    async def _sync(self, members: list[str]) -> ErrorCode:
        given = [
            {"member_id": member, "assignment": encode_assignment(Assignment(partitions=_share(place, len(members))))}
            for place, member in enumerate(members)
        ]
        generation = self.generation
        answer = await self._ask(ApiKey.SYNC_GROUP, {**self._who, "assignments": given}, 3)
        if answer.error_code == ErrorCode.none:
            places = decode_assignment(answer.assignment).partitions if answer.assignment else ()
            self.owned = frozenset(place.partition for place in places)
            self._history.assigned(generation, self._member_id, self.owned)
        return ErrorCode(answer.error_code)

    def _join_message(self) -> dict[str, Any]:
        topics = (TOPIC, "other")[: 1 + self._topics]
        return {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self._member_id,
            "group_instance_id": self._instance,
            "protocol_type": "consumer",
            "protocols": [{"name": "p", "metadata": encode_subscription(Subscription(topics=topics))}],
        }

    @property
    def _who(self) -> dict[str, Any]:
        me = {"member_id": self._member_id, "group_instance_id": self._instance}
        return {"group_id": GROUP, "generation_id": self.generation, **me}

    # What members do

    async def _act(self) -> ErrorCode:
        deeds = [self._beat, self._commit, self._commit, self._fetch, self._fetch, self._pause, self._change]
        deeds += [self._leave, self._vanish, self._join_and_forget, self._describe]
        weights = [6, 8, 8, 4, 4, 1, 1, 1, 1, 1, 2]
        if self._former_id and self._instance is not None:
            deeds, weights = [*deeds, self._commit_as_former], [*weights, 4]
        (deed,) = self._chance.choices(deeds, weights)
        return await deed()

    async def _beat(self) -> ErrorCode:
        sent_s = self._world.now_s
        error = self._known(ErrorCode((await self._ask(ApiKey.HEARTBEAT, self._who, 3)).error_code))
        if error is ErrorCode.none:
            self._known_s = sent_s
        return error

    async def _commit(self) -> ErrorCode:
        """Commit the next offset of an owned partition. A commit without an answer does not count as acknowledged."""
        if not self.owned:
            return await self._beat()
        partition = self._chance.choice(sorted(self.owned))
        self._history.counters[partition] += 1
        offset, last_generation = self._history.counters[partition], self._history.last_generation
        error = await self._commit_offset(partition, offset, self._member_id)
        if error is ErrorCode.none:
            self._history.committed(partition, offset, self.generation, last_generation)
        return error

    async def _commit_offset(self, partition: int, offset: int, member_id: str) -> ErrorCode:
        place = {"partition_index": partition, "committed_offset": offset, "committed_metadata": None}
        who = {"group_id": GROUP, "generation_id_or_member_epoch": self.generation, "member_id": member_id}
        topics = [{"name": TOPIC, "partitions": [place]}]
        message = {**who, "group_instance_id": self._instance, "topics": topics}
        answer = await self._ask(ApiKey.OFFSET_COMMIT, message, 7)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def _commit_as_former(self) -> ErrorCode:
        """Commit as the process that this static member was before it started again."""
        if await self._commit_offset(0, self._history.counters[0], self._former_id) is ErrorCode.none:
            raise BrokenPromiseError(f"a commit by {self._former_id} was accepted, and {self._last_id} has replaced it")
        return await self._beat()

    async def _fetch(self) -> ErrorCode:
        least = {number: self._history.least(number) for number in range(PARTITIONS)}
        topics = [{"name": TOPIC, "partition_indexes": list(least)}]
        answer = await self._ask(ApiKey.OFFSET_FETCH, {"group_id": GROUP, "topics": topics}, 5)
        if answer.error_code == ErrorCode.none:
            for place in answer.topics[0].partitions:
                self._history.fetched(place.partition_index, place.committed_offset, least[place.partition_index])
        return ErrorCode(answer.error_code)

    async def _describe(self) -> ErrorCode:
        """Describe the group; `checks.coordinator_replies` compares the answer with the coordinator's log."""
        answer = await self._ask(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5)
        return ErrorCode(answer.groups[0].error_code)

    async def _pause(self) -> ErrorCode:
        """Send nothing for a second or for longer than the session timeout, and then commit."""
        await asyncio.sleep(self._chance.choice((1.0, 1.5 * SESSION_MS / 1000)))
        return await self._commit()

    async def _change(self) -> ErrorCode:
        self._topics = 1 - self._topics
        return ErrorCode.rebalance_in_progress

    async def _leave(self) -> ErrorCode:
        if self._instance is None:
            await self._ask(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "member_id": self._member_id}, 0)
        else:
            members = [{"member_id": self._member_id, "group_instance_id": self._instance}]
            await self._ask(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "members": members}, 3)
        self._known_s = float("-inf")
        await asyncio.sleep(self._chance.choice((0.1, 3.0)))
        return ErrorCode.unknown_member_id

    async def _vanish(self) -> ErrorCode:
        """Die without leaving; a new member comes in its place."""
        self._drop()
        self._member_id = ""
        await asyncio.sleep(self._chance.choice((0.1, 3.0)))
        raise OdradekError("vanished")

    async def _join_and_forget(self) -> ErrorCode:
        """Ask to join, lose the connection with the answer, and commit in the last known generation."""
        assert self._client is not None
        joining = self._client.request(ApiKey.JOIN_GROUP, self._join_message(), 5)
        joining.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.sleep(self._chance.choice((0.01, 0.5, 4.0)))
        self._drop()
        async with asyncio.timeout(_PATIENCE_S):
            await self._connect()
        return await self._commit()


def _share(place: int, count: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(TOPIC, number) for number in range(place, PARTITIONS, count))


class ClassicGroup(Workload):
    """Members of the classic protocol that come, pause, vanish and leave, and commit offsets; some are static.

    The group is often full: a member that has vanished counts until its session ends.
    """

    config: ClassVar[Mapping[str, str]] = {"group.initial.rebalance.delay.ms": "200", "group.max.size": "3"}
    clients: ClassVar[Sequence[str]] = ("member-0", "member-1")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        history = GroupHistory()
        chance = world.simulation.entropy("classic group")
        count = chance.choice((2, 3))
        history.instances = [f"static-{number}" for number in range(chance.choice((0, 0, 1, count)))]
        instances = [*history.instances, *[None] * count]
        self._actors = [Actor(world, f"member-{each}", history, instances[each]) for each in range(count)]
        self._lives: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the members, and return when a generation has been assigned."""
        await create_topic(self.world, TOPIC, PARTITIONS)
        self._lives = [self.world.spawn(actor.name, actor.live()) for actor in self._actors]
        await until(lambda: any(actor.generation > 0 for actor in self._actors), within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Let one member vanish for ever, and wait until the others own every partition in one generation."""
        self._actors[-1].is_doomed = True
        with suppress(TimeoutError):
            await until(lambda: self._actors[-1].is_dead, within_s=_PATIENCE_S)
        raise_failures(self._lives)  # before the cancellation, which would hide the failure of a member that has ended
        await cancel(self._lives.pop())
        self._actors.pop()
        for actor in self._actors:
            actor.is_calm = True
        try:
            await until(self._is_stable, within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            return ["the classic group does not become stable"]
        await cancel(*self._lives)
        return []

    def _is_stable(self) -> bool:
        raise_failures(self._lives)
        owned = sorted(number for actor in self._actors for number in actor.owned)
        return owned == list(range(PARTITIONS)) and len({actor.generation for actor in self._actors}) == 1
