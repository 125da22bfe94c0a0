"""Requests of the consumer protocol and their replies, independent of the wire format."""

from collections.abc import Callable, Collection

from msgspec import Struct

from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember, subscription_size


def _none_denied(names: Collection[str]) -> Collection[str]:
    return ()


class ConsumerGroupHeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A ConsumerGroupHeartbeat request. None, or a `rebalance_timeout_ms` of -1, means unchanged."""

    member_id: str
    member_epoch: int
    """0 to join, -1 to leave, -2 for a static member that will return."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    denied_topics: Callable[[Collection[str]], Collection[str]] = _none_denied
    """Returns which of the given topics the client may not describe; regular expressions skip them."""

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of a member with the request's subscription; 0 if that is unchanged."""
        if self.subscribed_topic_names is None and self.subscribed_topic_regex is None:
            return 0
        return subscription_size(self.subscribed_topic_names or (), self.subscribed_topic_regex)

    @property
    def is_keep_alive(self) -> bool:
        """Return whether the request only extends the member's session, as most heartbeats do."""
        return (
            self.owned is None
            and self.subscribed_topic_names is None
            and self.subscribed_topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
            and self.instance_id is None
            and self.rebalance_timeout_ms == -1
        )

    @property
    def is_full(self) -> bool:
        """Return whether the response must have the assignment: the member joins, or the request has all fields."""
        has_subscription = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        is_complete = self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        return self.member_epoch == 0 or is_complete


class ConsumerGroupHeartbeatReply(Struct, frozen=True, kw_only=True):
    """The response to a heartbeat. An `assignment` of None means unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Struct, frozen=True, kw_only=True):
    """A group's part of a ConsumerGroupDescribe request.

    The reply is a `ConsumerGroupDescription`, or `KafkaError` GROUP_ID_NOT_FOUND.
    """


class ConsumerGroupDescription(Struct, frozen=True, kw_only=True):
    """The state of a group, with each member and its target."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[tuple[ConsumerGroupMember, Assignment], ...]


class MemberFenced(Struct, frozen=True, kw_only=True):
    """A member was removed after its session or a deadline to revoke, join or sync expired."""

    group_id: str
    member_id: str
    reason: str
