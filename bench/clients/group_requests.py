"""Workload of heartbeats or commits: groups of one member, each with several requests in flight."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.clients.members import await_coordinator
from bench.clients.workloads import Figures
from bench.measure import cpu_seconds
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.messages.message_codec import encode_request
from odradek.runtime import SystemNetwork
from odradek.simulation.wire_client import WireClient

_HEARTBEAT_VERSION: Final = 4
_COMMIT_VERSION: Final = 8
_CONSUMER_HEARTBEAT_VERSION: Final = 1
_JOIN_VERSION: Final = 3
"""The last version in which a member joins with its first request."""


def group_requests(
    bootstrap_servers: str,
    *,
    pid: int,
    topic: str,
    partitions: int,
    groups: int,
    in_flight: int,
    seconds: float,
    is_consumer: bool = False,
) -> Figures:
    """Send heartbeats, or commits of `partitions` offsets if that is not 0, for `seconds`.

    The CPU of `pid`, the broker's process, is measured. With `is_consumer` the heartbeats are ConsumerGroupHeartbeat.
    """
    join = _Sender.join_consumer if is_consumer else _Sender.join
    return asyncio.run(_send(bootstrap_servers, pid, topic, partitions, groups, in_flight, seconds, join))


async def _send(
    address: str,
    pid: int,
    topic: str,
    partitions: int,
    groups: int,
    in_flight: int,
    seconds: float,
    join: "Callable[[str, str, str, int], Awaitable[_Sender]]",
) -> Figures:
    senders = [await join(address, f"{topic}-{number}", topic, partitions) for number in range(groups)]
    cpu_s, began_s = cpu_seconds(pid), time.monotonic()
    until_s = began_s + seconds
    counts = await asyncio.gather(*(sender.send(until_s) for sender in senders for _ in range(in_flight)))
    took_s, cpu_s = time.monotonic() - began_s, cpu_seconds(pid) - cpu_s
    for sender in senders:
        sender.client.transport.abort()
    return {"per_second": sum(counts) / took_s, "per_core_second": sum(counts) / cpu_s}


class _Sender:
    """A member that sends the same request repeatedly."""

    def __init__(self, client: WireClient, api: ApiKey, version: int, message: dict[str, Any]) -> None:
        self.client = client
        self._api = api
        self._version = version
        self._body = encode_request(api, version, message)

    @classmethod
    async def join(cls, address: str, group_id: str, topic: str, partitions: int) -> "_Sender":
        """Join a classic group as its only member; return it when the group is stable."""
        await await_coordinator(address, group_id)
        host, port = address.rsplit(":", 1)
        client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="member")
        metadata = encode_subscription(Subscription(topics=(topic,)))
        message = {
            "group_id": group_id,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        joined = await client.ask(ApiKey.JOIN_GROUP, message, _JOIN_VERSION)
        assert joined.error_code == ErrorCode.none, joined
        generation, member_id = joined.generation_id, joined.member_id
        who = {"group_id": group_id, "generation_id": generation, "member_id": member_id, "group_instance_id": None}
        given = [{"member_id": member_id, "assignment": b""}]
        synced = await client.ask(ApiKey.SYNC_GROUP, {**who, "assignments": given}, _JOIN_VERSION)
        assert synced.error_code == ErrorCode.none, synced
        if not partitions:
            return cls(client, ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, who)
        offsets = [
            {"partition_index": number, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
            for number in range(partitions)
        ]
        commit = {
            "group_id": group_id,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": offsets}],
        }
        return cls(client, ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, commit)

    @classmethod
    async def join_consumer(cls, address: str, group_id: str, topic: str, partitions: int) -> "_Sender":
        """Join a group of the consumer protocol as its only member; its heartbeats have no changes."""
        del partitions
        await await_coordinator(address, group_id)
        host, port = address.rsplit(":", 1)
        client = await WireClient.connect(SystemNetwork(), host, int(port), client_id="member")
        message: dict[str, Any] = {
            "group_id": group_id,
            "member_id": str(uuid.uuid4()),
            "member_epoch": 0,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }
        joined = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, _CONSUMER_HEARTBEAT_VERSION)
        assert joined.error_code == ErrorCode.none, joined
        message |= {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
        message["member_epoch"] = joined.member_epoch
        return cls(client, ApiKey.CONSUMER_GROUP_HEARTBEAT, _CONSUMER_HEARTBEAT_VERSION, message)

    async def send(self, until_s: float) -> int:
        """Send requests one after the other; return their number. Raises `RuntimeError` for an error response."""
        count = 0
        while time.monotonic() < until_s:
            answer = await self.client.ask(self._api, self._body, self._version)
            if self._api is ApiKey.OFFSET_COMMIT:
                errors = {each.error_code for topic in answer.topics for each in topic.partitions}
            else:
                errors = {answer.error_code}
            if errors != {ErrorCode.none}:
                raise RuntimeError(f"a request was refused: {answer}")
            count += 1
        return count
