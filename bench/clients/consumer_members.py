"""Members of a consumer group (KIP-848) that only send heartbeats and fetch nothing, all in one event loop."""

import asyncio
import time
import uuid
from typing import Any

from bench.clients.members import HEARTBEAT_S, HeadlessGroup, Life
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.runtime import SystemNetwork
from odradek.simulation.wire_client import WireClient

_REBALANCE_MS = 60_000
_LEAVE = -1


class ConsumerHeadlessMember(Life):
    """A member with its own connection; it revokes partitions at once, and sends a heartbeat every 100 ms."""

    def __init__(self, group: HeadlessGroup) -> None:
        super().__init__(group)
        self._member_id = str(uuid.uuid4())
        self._topic_id: uuid.UUID | None = None
        self._epoch = 0

    async def start(self) -> None:
        host, port = self.group.address.rsplit(":", 1)
        self.client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="member")
        self.life = asyncio.create_task(self._live())

    async def leave(self) -> None:
        await self.end()
        await self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._message(_LEAVE), 1)
        self.group.released(self.owned, time.monotonic())
        self.client.transport.abort()

    async def _live(self) -> None:
        says_all = True
        while True:
            says_all = await self._beat(says_all=says_all)
            if not says_all:
                await asyncio.sleep(HEARTBEAT_S)

    async def _beat(self, *, says_all: bool) -> bool:
        """Send a heartbeat; return whether the next one is due at once, with the owned partitions."""
        message = self._message(self._epoch)
        if says_all:
            owned = [{"topic_id": self._topic_id, "partitions": sorted(self.owned)}] if self.owned else []
            message |= {"topic_partitions": owned}
        if self._epoch == 0:
            message |= {"rebalance_timeout": _REBALANCE_MS, "subscribed_topic_names": [self.group.topic]}
        answer = await self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, 1)
        self.last_seen_s = time.monotonic()
        if answer.error_code != ErrorCode.none:
            await asyncio.sleep(HEARTBEAT_S)
            if answer.error_code in {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch}:
                self.revoke(self.owned)
                self._epoch = 0
            return True
        self._epoch = self.generation = answer.member_epoch
        return answer.assignment is not None and self._take(answer.assignment)

    def _take(self, assignment: Any) -> bool:
        """Apply an assignment; return whether it changed the owned partitions."""
        numbers: set[int] = set()
        for each in assignment.topic_partitions:
            self._topic_id = each.topic_id
            numbers.update(each.partitions)
        assigned = frozenset(numbers)
        if assigned == self.owned:
            return False
        self.revoke(self.owned - assigned)
        self.owned = assigned
        self.group.taken(assigned)
        return True

    def _message(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self.group.group_id,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
