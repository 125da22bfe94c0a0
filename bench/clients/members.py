"""Members of a classic group, eager or cooperative, that send group requests and fetch nothing, in one event loop."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from odradek.assignors import assign
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.runtime import SystemNetwork
from odradek.simulation.wire_client import WireClient

HEARTBEAT_S: Final = 0.1
SESSION_MS: Final = 6_000
_REBALANCE_MS: Final = 60_000
_LOAD_S: Final = 60.0


class HeadlessGroup:
    """A group and its members. It sums the time in which partitions had no owner (`unowned_partition_s`)."""

    def __init__(
        self, address: str, group_id: str, topic: str, partitions: int, *, is_cooperative: bool = False
    ) -> None:
        self.address = address
        self.group_id = group_id
        self.topic = topic
        self.partitions = partitions
        self.is_cooperative = is_cooperative
        self.new_member: Callable[[HeadlessGroup], Life] = HeadlessMember
        self.members: list[Life] = []
        self.unowned_partition_s = 0.0
        self._released_at: dict[int, float] = {}

    def places(self, numbers: Iterable[int]) -> tuple[TopicPartition, ...]:
        """Return the partitions with these numbers."""
        return tuple(TopicPartition(self.topic, number) for number in numbers)

    def released(self, numbers: frozenset[int], at_s: float) -> None:
        """Record that these partitions have had no owner since `at_s`."""
        self._released_at.update(dict.fromkeys(numbers, at_s))

    def taken(self, numbers: frozenset[int]) -> None:
        """Record that these partitions have an owner now."""
        now_s = time.monotonic()
        for number in numbers:
            released_at = self._released_at.pop(number, None)
            if released_at is not None:
                self.unowned_partition_s += now_s - released_at

    async def add(self, count: int) -> None:
        """Let `count` members join, without waiting for the end of the rebalance."""
        for _ in range(count):
            member = self.new_member(self)
            self.members.append(member)
            await member.start()

    async def until_stable(self) -> None:
        """Wait until all members have the same generation and every partition has an owner."""
        while not self._is_stable():
            for member in self.members:
                member.check()
            await asyncio.sleep(0.002)

    def _is_stable(self) -> bool:
        generations = {member.generation for member in self.members}
        is_one = len(generations) == 1 and -1 not in generations
        return is_one and sum(len(member.owned) for member in self.members) == self.partitions

    async def close(self) -> None:
        """Close the connections of all members, without LeaveGroup."""
        for member in self.members:
            await member.die()


class Life(ABC):
    """The base of members of both protocols: a connection, a task, and the owned partitions."""

    def __init__(self, group: HeadlessGroup) -> None:
        self.owned: frozenset[int] = frozenset()
        self.generation = -1
        self.group = group
        self.last_seen_s = 0.0
        self.client: WireClient
        self.life: asyncio.Task[None]

    @abstractmethod
    async def start(self) -> None:
        """Connect and join."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group."""

    def check(self) -> None:
        """Raise the error that has ended the member's task, if there is one."""
        if self.life.done():
            self.life.result()

    async def end(self) -> None:
        """Stop the member's task, without LeaveGroup."""
        self.life.cancel()
        await asyncio.wait([self.life])

    async def die(self) -> None:
        """Close the connection without LeaveGroup; its partitions have no owner from its last heartbeat on."""
        await self.end()
        self.group.released(self.owned, self.last_seen_s)
        self.client.transport.abort()

    def revoke(self, numbers: frozenset[int]) -> None:
        """Give up these partitions."""
        self.group.released(numbers, time.monotonic())
        self.owned -= numbers


class HeadlessMember(Life):
    """One member of a classic group."""

    def __init__(self, group: HeadlessGroup) -> None:
        super().__init__(group)
        self._member_id = ""

    async def start(self) -> None:
        host, port = self.group.address.rsplit(":", 1)
        self.client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="member")
        self.life = asyncio.create_task(self._live())

    async def leave(self) -> None:
        await self.end()
        message = {"group_id": self.group.group_id, "member_id": self._member_id}
        await self.client.ask(ApiKey.LEAVE_GROUP, message, 0)
        self.group.released(self.owned, time.monotonic())
        self.client.transport.abort()

    async def _live(self) -> None:
        while True:
            await self._rejoin()
            is_member = True
            while is_member:
                await asyncio.sleep(HEARTBEAT_S)
                is_member = await self._beat()

    async def _beat(self) -> bool:
        answer = await self.client.ask(ApiKey.HEARTBEAT, self._who, 3)
        self.last_seen_s = time.monotonic()
        return bool(answer.error_code == ErrorCode.none)

    async def _rejoin(self) -> None:
        """Join until the member has its assignment of a generation; a cooperative member keeps its partitions."""
        if not self.group.is_cooperative:
            self.revoke(self.owned)
        self.generation = -1
        while True:
            joined = await self.client.ask(ApiKey.JOIN_GROUP, self._join_message(), 5)
            if joined.error_code in {ErrorCode.none, ErrorCode.member_id_required}:
                self._member_id = joined.member_id
            elif joined.error_code == ErrorCode.unknown_member_id:
                self._member_id = ""
                self.revoke(self.owned)
            elif joined.error_code != ErrorCode.rebalance_in_progress:
                await asyncio.sleep(HEARTBEAT_S)
            if joined.error_code == ErrorCode.none and await self._sync(joined):
                return

    async def _sync(self, joined: Any) -> bool:
        """Get the assignment; return False if the member must join again, because of an error or revoked partitions."""
        who = {**self._who, "generation_id": joined.generation_id}
        given = self._assignments(joined.members)
        synced = await self.client.ask(ApiKey.SYNC_GROUP, {**who, "assignments": given}, 3)
        if synced.error_code != ErrorCode.none:
            return False
        assigned = _numbers(decode_assignment(synced.assignment).partitions)
        revoked = self.owned - assigned
        self.revoke(revoked)
        self.owned, self.last_seen_s = assigned, time.monotonic()
        self.group.taken(assigned)
        if revoked:
            return False
        self.generation = joined.generation_id
        return True

    def _assignments(self, members: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the assignments of the leader; empty for other members, whose JoinGroup response has no members."""
        group = self.group
        if not members:
            return []
        if group.is_cooperative:
            owned = {each.member_id: decode_subscription(each.metadata).owned_partitions for each in members}
            topics = dict.fromkeys(owned, (group.topic,))
            shares = assign("cooperative-sticky", {group.topic: group.partitions}, topics, owned)
        else:
            ids = sorted(each.member_id for each in members)
            numbers = {each: range(place, group.partitions, len(ids)) for place, each in enumerate(ids)}
            shares = {each: group.places(share) for each, share in numbers.items()}
        return [
            {"member_id": each, "assignment": encode_assignment(Assignment(partitions=tuple(share)))}
            for each, share in shares.items()
        ]

    def _join_message(self) -> dict[str, Any]:
        group = self.group
        name = "cooperative-sticky" if group.is_cooperative else "range"
        metadata = encode_subscription(Subscription(topics=(group.topic,), owned_partitions=group.places(self.owned)))
        return {
            "group_id": self.group.group_id,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": _REBALANCE_MS,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata}],
        }

    @property
    def _who(self) -> dict[str, Any]:
        return {"group_id": self.group.group_id, "generation_id": self.generation, "member_id": self._member_id}


def _numbers(places: Iterable[TopicPartition]) -> frozenset[int]:
    return frozenset(place.partition for place in places)


async def await_coordinator(address: str, group_id: str) -> None:
    """Wait until the group has a coordinator that has loaded it."""
    host, port = address.rsplit(":", 1)
    client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="bench")
    stranger = {"group_id": group_id, "generation_id": 0, "member_id": "-"}
    async with asyncio.timeout(_LOAD_S):
        while (await client.ask(ApiKey.HEARTBEAT, stranger, 3)).error_code != ErrorCode.unknown_member_id:
            await client.ask(ApiKey.FIND_COORDINATOR, {"key": group_id, "key_type": 0}, 3)
            await asyncio.sleep(HEARTBEAT_S)
    client.transport.abort()
