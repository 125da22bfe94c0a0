"""The interfaces of a group member, for both group protocols: its state machine and its requests."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from odradek.clients.consumer.actions import Action, LeaveGroup, RebalanceCallback
from odradek.model import ErrorCode, OdradekError
from odradek.wire.client_connection import ClientConnection


class ConsumerState(StrEnum):
    """The state of a consumer in a group, for both group protocols (SPEC 6; docs/coordinator.md)."""

    DOWN = "down"
    """It takes no part in the group: not subscribed, closed, or ended by an error that every poll raises."""
    DISCOVERING = "discovering"
    """It looks for the coordinator, and has no partitions yet."""
    MEMBER = "member"
    """It reads its partitions and sends heartbeats."""
    REDISCOVERING = "rediscovering"
    """It has lost the coordinator and looks for it again; it reads on."""
    STOPPED = "stopped"
    """It gives partitions up, or joins (again); a cooperative member reads on what it keeps."""


class Membership(Protocol):
    """The state machine of one member. `now` is in monotonic seconds; methods return the actions to perform."""

    @property
    def member_id(self) -> str:
        """Return the member's id, empty if it has none yet."""

    @property
    def generation_id(self) -> int:
        """Return the generation or member epoch for commits; negative if the consumer is not a member."""

    @property
    def error(self) -> OdradekError | None:
        """Return the fatal error that prevents membership, if any."""

    @property
    def is_subscribed(self) -> bool:
        """Return whether the consumer has subscribed and not left since."""

    @property
    def consumer_state(self) -> ConsumerState:
        """Return SPEC 6's state, which follows from the state of this machine."""

    @property
    def pending_callback(self) -> RebalanceCallback | None:
        """Return the rebalance callback that must run before the member can continue, if any."""

    def callback_started(self, callback: RebalanceCallback) -> None:
        """Record the new assignment before its callback runs."""

    def callback_completed(self, callback: RebalanceCallback, now: float) -> list[Action]:
        """Continue the rebalance after a callback."""

    def poll_started(self) -> list[Action]:
        """Stop the poll timer while the application waits in `poll`."""

    def poll_finished(self, now: float) -> None:
        """Start the poll timer when the application leaves `poll`."""

    def leave(self, reason: str) -> list[Action]: ...

    def coordinator_found(self, now: float) -> list[Action]:
        """Join, or resume heartbeats, after the coordinator connection was opened."""

    def coordinator_lost(self) -> list[Action]:
        """Find the coordinator again."""

    def commit_refused(self, code: ErrorCode, now: float) -> list[Action]:
        """Handle the error code of an OffsetCommit, which may mean a rebalance or that the member is fenced."""

    def failed(self, error: OdradekError) -> list[Action]:
        """Enter the fatal state; the next poll raises the error."""

    def take_assignment_error(self, now: float) -> Exception | None:
        """Return, once, the error of the assignor that ran in this member as the leader; None without one."""

    def next_at(self) -> float:
        """Return the monotonic second of the next `tick`; infinite if no timer is set."""

    def tick(self, now: float) -> list[Action]:
        """Handle expired timers: heartbeat, retry, session timeout, poll timeout."""


class GroupRequests(Protocol):
    """Sends the requests of one member and passes the responses to its state machine."""

    @property
    def member(self) -> Membership: ...

    @property
    def metadata_topics(self) -> set[str]:
        """Return the topics whose metadata the membership needs."""

    def subscribe(self, topics: Iterable[str], pattern: "re.Pattern[str] | None", now: float) -> list[Action]:
        """Join the group with `topics`; with a pattern, these are the topics that match it."""

    def metadata_updated(self, now: float) -> list[Action]:
        """Handle new metadata, which may change the assignment."""

    async def compute(self, action: Action) -> list[Action] | None:
        """Perform an action and return those that follow; return None if it needs a connection (`send`)."""

    async def send(self, connection: ClientConnection, action: Action) -> list[Action]:
        """Send an action's request and return the actions that follow from the response."""

    async def leave(self, connection: ClientConnection, action: LeaveGroup) -> None:
        """Send the request that leaves the group."""
