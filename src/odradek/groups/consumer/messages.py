"""Requests of the consumer protocol and their replies, independent of the wire format."""

from collections.abc import Callable, Collection

from odradek.groups.consumer.member import Assignment, ConsumerGroupMember
from odradek.model.values import dataclass, field


def _none_denied(names: Collection[str]) -> Collection[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """A ConsumerGroupHeartbeat request. None, and -1 for the time-out, stand for "as before"."""

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
    denied_topics: Callable[[Collection[str]], Collection[str]] = field(default=_none_denied, repr=False, compare=False)
    """Returns those of some topics that the client may not describe; a regular expression does not match them."""

    @property
    def is_keep_alive(self) -> bool:
        """Return whether it only extends the session of a member, as most heartbeats do."""
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
        """Return whether it says everything, as after an error: then the reply has the whole assignment."""
        has_subscription = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        is_complete = self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        return self.member_epoch == 0 or is_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    """The response. An `assignment` of None stands for "as before"."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeRequest:
    """A group's part of a ConsumerGroupDescribe request.

    The reply is a `ConsumerGroupDescription`, None for an unknown group or one of another kind.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """The present state of a group: its members, and the target of each."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[tuple[ConsumerGroupMember, Assignment], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFenced:
    """A member was removed because it was silent, or did not give up partitions in time."""

    group_id: str
    member_id: str
    reason: str
