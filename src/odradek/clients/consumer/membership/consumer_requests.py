"""Sends the ConsumerGroupHeartbeat requests of a member of the consumer protocol (KIP-848)."""

import re
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.actions import (
    Action,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    LeaveGroup,
    RefreshMetadata,
)
from odradek.clients.consumer.membership.consumer_membership_manager import ConsumerMembershipManager
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.metadata import ClusterMetadata
from odradek.model import ErrorCode, KafkaError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional
from odradek.runtime import uuid4
from odradek.wire.client_connection import ClientConnection

_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
_LEAVE_TIMEOUT_MS: Final = 5_000
_REGEX_FROM: Final = 1


class ConsumerGroupRequests:
    """The `GroupRequests` of one member; the coordinator resolves regular expressions, in RE2's syntax."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, group_id: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._group_id = group_id
        self._topics: tuple[str, ...] = ()
        self._regex: str | None = None
        self._metadata: ClusterMetadata | None = None
        self._names: dict[UUID | None, str] = {}
        """The topic names by id in `_metadata`."""
        self.member = ConsumerMembershipManager(
            str(uuid4(cluster.runtime.entropy)),
            self._topic_name,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
        )

    def _topic_name(self, topic_id: UUID) -> str | None:
        metadata = self._cluster.metadata
        if metadata is not self._metadata:
            self._metadata = metadata
            self._names = {topic.topic_id: name for name, topic in metadata.topics.items()}
        return self._names.get(topic_id)

    @property
    def metadata_topics(self) -> set[str]:
        return set(self._topics) if self.member.is_subscribed else set()

    def subscribe(self, topics: Iterable[str], pattern: "re.Pattern[str] | None", now: float) -> list[Action]:
        regex = None if pattern is None else pattern.pattern
        wanted = tuple(sorted(set(topics))) if regex is None else ()
        if self.member.is_subscribed and (wanted, regex) == (self._topics, self._regex):
            return []
        self._topics, self._regex = wanted, regex
        return self.member.subscribe(now)

    def metadata_updated(self, now: float) -> list[Action]:
        del now
        return self.member.metadata_updated()

    async def compute(self, action: Action) -> list[Action] | None:
        if not isinstance(action, RefreshMetadata):
            return None
        self._cluster.request_refresh(at_once=True)
        return []

    async def send(self, connection: ClientConnection, action: Action) -> list[Action]:
        assert isinstance(action, ConsumerGroupHeartbeat)
        if not connection.supports(ApiKey.CONSUMER_GROUP_HEARTBEAT):
            text = f"broker {connection.address} has no consumer protocol (KIP-848); set group_protocol to classic"
            raise KafkaError(ErrorCode.unsupported_version, text)
        if self._regex is not None and connection.version(ApiKey.CONSUMER_GROUP_HEARTBEAT) < _REGEX_FROM:
            text = f"broker {connection.address} resolves no patterns (KIP-848, version 1); subscribe to topics"
            raise KafkaError(ErrorCode.unsupported_version, text)
        message = self._message(action.epoch)
        if action.is_full:
            settings = self._settings
            message |= {
                "rack_id": settings.client_rack,
                "rebalance_timeout": settings.max_poll_interval_ms,
                "subscribed_topic_names": self._topics,
                "subscribed_topic_regex": "" if self._regex is None else self._regex,
                "server_assignor": settings.group_remote_assignor,
            }
        if action.owned is not None:
            message["topic_partitions"] = [
                {"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in action.owned.items()
            ]
        timeout_ms = self._settings.request_timeout_ms
        answer = await connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, timeout_ms=timeout_ms)
        return self.member.heartbeat_answered(_response(action, answer), self._cluster.runtime.clock.monotonic())

    async def leave(self, connection: ClientConnection, action: LeaveGroup) -> None:
        """Send the leaving heartbeat: with epoch -1, or -2 for a static member, which may return."""
        del action
        epoch = _LEAVE if self._settings.group_instance_id is None else _LEAVE_FOR_A_WHILE
        await connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._message(epoch), timeout_ms=_LEAVE_TIMEOUT_MS)

    def _message(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._group_id,
            "member_id": self.member.member_id,
            "member_epoch": epoch,
            "instance_id": self._settings.group_instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }


def _response(request: ConsumerGroupHeartbeat, answer: Any) -> ConsumerGroupHeartbeatResponse:
    if answer.error_code != ErrorCode.none:
        text = optional(answer, "error_message", None) or explained(answer.error_code)
        return ConsumerGroupHeartbeatResponse(request=request, error=KafkaError(answer.error_code, text))
    assignment = answer.assignment
    return ConsumerGroupHeartbeatResponse(
        request=request,
        epoch=answer.member_epoch,
        heartbeat_interval_ms=round(answer.heartbeat_interval.total_seconds() * 1000),
        assignment=None
        if assignment is None
        else {each.topic_id: frozenset(each.partitions) for each in assignment.topic_partitions},
    )
