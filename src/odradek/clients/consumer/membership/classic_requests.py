"""Sends JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a classic member, and computes the leader's assignment.

Each action of `ClassicMembershipManager` becomes a request here, and the response is passed back to it.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.assignors import Assignor, GroupSubscription, MemberSubscription, RebalanceProtocol, create_assignor
from odradek.clients.cluster import Cluster
from odradek.clients.consumer.actions import (
    Action,
    GroupRebalanceConfig,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    PerformAssignment,
    SyncGroup,
    SyncGroupResponse,
)
from odradek.clients.consumer.membership.classic_membership_manager import ClassicMembershipManager, MemberState
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.coordinators import find_coordinator
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.message_codec import optional
from odradek.wire.client_connection import ClientConnection

_log = logging.getLogger("odradek.clients")
_JOIN_GROUP_TIMEOUT_LAPSE_MS: Final = 5_000
"""The time in addition to the rebalance timeout that a JoinGroup or SyncGroup response may take, as in Kafka."""
_LEAVE_TIMEOUT_MS: Final = 5_000


class ClassicGroupRequests:
    """The `GroupRequests` of one member. `on_change` is called when a leader needs metadata of other topics."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        group_id: str,
        assignors: Iterable[Assignor],
        on_change: Callable[[], None],
    ) -> None:
        self._on_change = on_change
        self.group_id = group_id
        self._cluster = cluster
        self._settings = settings
        self._clock = cluster.runtime.clock
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._topics: tuple[str, ...] = ()
        self._assignment_snapshot: dict[str, int] | None = None
        """The partition counts by topic in this leader's last assignment; None before the first."""
        self.member = ClassicMembershipManager(
            GroupRebalanceConfig(
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                max_poll_interval_ms=settings.max_poll_interval_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
            ),
            group_instance_id=settings.group_instance_id,
            is_cooperative=all(
                RebalanceProtocol.COOPERATIVE in each.supported_protocols for each in self._assignors.values()
            ),
        )

    @property
    def metadata_topics(self) -> set[str]:
        """Return the subscribed topics of this member and, if it is the leader, of the whole group."""
        return set(self._topics) | set(self._assignment_snapshot or ()) if self.member.is_subscribed else set()

    def subscribe(self, topics: Iterable[str], pattern: "re.Pattern[str] | None", now: float) -> list[Action]:
        del pattern
        self._topics = tuple(sorted(set(topics)))
        if not self.member.is_subscribed:
            self._assignment_snapshot = None
        return self.member.subscribe(self._topics, now)

    def metadata_updated(self, now: float) -> list[Action]:
        """Rebalance if this member is the leader and partition counts have changed since its assignment."""
        if (
            self._assignment_snapshot is None
            or not self.member.is_leader
            or self.member.state is not MemberState.STABLE
            or self._partition_counts(self._assignment_snapshot) == self._assignment_snapshot
        ):
            return []
        return self.member.rebalance(now)

    async def compute(self, action: Action) -> list[Action] | None:
        if not isinstance(action, PerformAssignment):
            return None
        try:
            assignments = await self._perform_assignment(action)
        except Exception as error:
            # A custom assignor may raise anything; the next poll raises its error.
            _log.exception("group %s: no assignment by %s", self.group_id, action.protocol)
            return self.member.assignment_failed(error, action.generation_id)
        return self.member.assignment_computed(assignments, action.generation_id)

    async def send(self, connection: ClientConnection, action: Action) -> list[Action]:
        match action:
            case JoinGroup():
                answer = await self._send_join_group(connection, action)
                return self.member.join_group_answered(answer, self._clock.monotonic())
            case SyncGroup():
                synced = await self._send_sync_group(connection, action)
                return self.member.sync_group_answered(synced, self._clock.monotonic())
            case Heartbeat():
                code = await self._send_heartbeat(connection, action)
                return self.member.heartbeat_answered(code, action.generation_id, self._clock.monotonic())
        raise AssertionError(f"{action} is none of the classic protocol")

    async def leave(self, connection: ClientConnection, action: LeaveGroup) -> None:
        member = {"member_id": action.member_id, "group_instance_id": None, "reason": action.reason}
        message: dict[str, Any] = {"group_id": self.group_id, "member_id": action.member_id, "members": [member]}
        await connection.request(ApiKey.LEAVE_GROUP, message, timeout_ms=_LEAVE_TIMEOUT_MS)

    async def _send_join_group(self, connection: ClientConnection, action: JoinGroup) -> JoinGroupResponse:
        protocols = [
            {"name": name, "metadata": self._subscription_metadata(assignor, action)}
            for name, assignor in self._assignors.items()
        ]
        message = {
            "group_id": self.group_id,
            "session_timeout": self._settings.session_timeout_ms,
            "rebalance_timeout": self._settings.max_poll_interval_ms,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols,
            "reason": None,
        }
        timeout_ms = max(
            self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        response = await connection.request(ApiKey.JOIN_GROUP, message, timeout_ms=timeout_ms)
        return JoinGroupResponse(
            error_code=response.error_code,
            member_id=response.member_id,
            generation_id=response.generation_id,
            protocol=response.protocol_name,
            leader=response.leader,
            skip_assignment=optional(response, "skip_assignment", default=False),
            leave_count=action.leave_count,
            subscriptions={member.member_id: bytes(member.metadata) for member in response.members},
            instance_ids={member.member_id: optional(member, "group_instance_id", None) for member in response.members},
        )

    def _subscription_metadata(self, assignor: Assignor, action: JoinGroup) -> bytes:
        return encode_subscription(
            Subscription(
                topics=self._topics,
                user_data=assignor.user_data(self._topics),
                owned_partitions=tuple(sorted(action.owned)),
                generation_id=action.generation_id,
                rack_id=self._settings.client_rack,
            )
        )

    async def _perform_assignment(self, action: PerformAssignment) -> Mapping[str, bytes]:
        """Refresh the metadata, and return the encoded assignments by member id."""
        members = await self._decoded(action)
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        self._assignment_snapshot = dict.fromkeys(topics, 0)
        self._on_change()
        self._cluster.add_topics(topics)  # other members may subscribe to more than this consumer
        await self._cluster.refresh()
        self._assignment_snapshot = self._partition_counts(topics)
        counts = {topic: count for topic, count in self._assignment_snapshot.items() if count}
        group = GroupSubscription(
            partitions=counts,
            members={
                member_id: MemberSubscription(
                    topics=subscription.topics,
                    owned=subscription.owned_partitions,
                    generation=subscription.generation_id,
                    rack=subscription.rack_id,
                    instance_id=action.instance_ids.get(member_id),
                    user_data=subscription.user_data,
                )
                for member_id, subscription in members.items()
            },
            replica_racks={topic: self._racks(topic) for topic in counts},
        )
        assignment = self._assignors[action.protocol].assign(group)
        return {
            member_id: encode_assignment(Assignment(partitions=tuple(TopicPartition(*each) for each in partitions)))
            for member_id, partitions in assignment.items()
        }

    async def _decoded(self, action: PerformAssignment) -> dict[str, Subscription]:
        """Return the subscriptions by member id. Raises `KafkaError` that names the member of a malformed one."""
        members: dict[str, Subscription] = {}
        for member_id, metadata in action.subscriptions.items():
            try:
                members[member_id] = decode_subscription(metadata)
            except MalformedMessageError as error:
                member = await self._described(member_id)
                raise KafkaError(
                    ErrorCode.inconsistent_group_protocol,
                    f"group {self.group_id}: member {member} sent a {error}; stop or mend that client: the group gets "
                    "no assignment while it is a member",
                ) from error
        return members

    async def _described(self, member_id: str) -> str:
        """Return the member id for an error, with client id and host if DescribeGroups returns them."""
        with contextlib.suppress(KafkaError, UnavailableError):
            connection = await self._cluster.connections.to_broker(await find_coordinator(self._cluster, self.group_id))
            message = {"groups": [self.group_id], "include_authorized_operations": False}
            response = await connection.request(ApiKey.DESCRIBE_GROUPS, message)
            for member in response.groups[0].members:
                if member.member_id == member_id:
                    return f"{member_id} (client id {member.client_id!r}, host {member.client_host})"
        return member_id

    async def _send_sync_group(self, connection: ClientConnection, action: SyncGroup) -> SyncGroupResponse:
        message = {
            "group_id": self.group_id,
            "generation_id": action.generation_id,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": action.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in action.assignments.items()
            ],
        }
        timeout_ms = max(
            self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + _JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        response = await connection.request(ApiKey.SYNC_GROUP, message, timeout_ms=timeout_ms)
        if response.error_code != ErrorCode.none:
            return SyncGroupResponse(error_code=response.error_code)
        try:
            partitions = decode_assignment(response.assignment).partitions
        except MalformedMessageError as error:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"group {self.group_id}: the group's leader sent member {action.member_id} a {error}; stop or mend the "
                "leader's client, then start this consumer again",
            ) from error
        if action.generation_id == self.member.generation_id:
            self._assignors[action.protocol].on_assignment(partitions, action.generation_id)
        return SyncGroupResponse(error_code=ErrorCode.none, assignment=frozenset(partitions))

    async def _send_heartbeat(self, connection: ClientConnection, action: Heartbeat) -> ErrorCode:
        message = {
            "group_id": self.group_id,
            "generation_id": action.generation_id,
            "member_id": action.member_id,
            "group_instance_id": self._settings.group_instance_id,
        }
        timeout_ms = min(self._settings.session_timeout_ms, self._settings.request_timeout_ms)
        response = await connection.request(ApiKey.HEARTBEAT, message, timeout_ms=timeout_ms)
        code: ErrorCode = response.error_code
        return code

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self._cluster.metadata.partitions_for_topic(topic)) for topic in topics}

    def _racks(self, topic: str) -> list[set[str]]:
        metadata = self._cluster.metadata
        return [
            {
                rack
                for node_id in partition.replicas
                if node_id in metadata.nodes and (rack := metadata.nodes[node_id].rack)
            }
            for partition in metadata.topics[topic].partitions.values()
        ]


def create_assignors(strategies: str | Assignor | Iterable[str | Assignor]) -> list[Assignor]:
    """Create assignors from objects and names; one string may have several names, separated by commas.

    Raises `ConfigurationError` for an unknown name.
    """
    if isinstance(strategies, str):
        strategies = [name.strip() for name in strategies.split(",")]
    chosen = strategies if isinstance(strategies, Iterable) else [strategies]
    try:
        return [create_assignor(each) for each in chosen]
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
