"""The interface between a consumer and its membership of a group, the same for both protocols."""

import re
from collections.abc import Iterable
from typing import Protocol

from odradek.clients.consumer.actions import Action, LeaveGroup, RebalanceCallback
from odradek.model import ErrorCode, OdradekError
from odradek.wire.client_connection import ClientConnection


class Membership(Protocol):
    """The state machine of one member, with monotonic `now` in and actions out."""

    @property
    def member_id(self) -> str:
        """Return the member's id, empty if it has none yet."""

    @property
    def generation_id(self) -> int:
        """Return the generation or the member's epoch, as commits have it; negative if it is not a member."""

    @property
    def error(self) -> OdradekError | None:
        """Return why it can never join, if it cannot."""

    @property
    def is_subscribed(self) -> bool:
        """Return whether it is a member, or on the way to be one."""

    @property
    def pending_callback(self) -> RebalanceCallback | None:
        """Return the callback that must run before the member can continue."""

    def callback_started(self, callback: RebalanceCallback) -> None:
        """Record the new assignment before its callback runs."""

    def callback_completed(self, callback: RebalanceCallback, now: float) -> list[Action]:
        """Continue after a callback."""

    def poll_started(self) -> list[Action]:
        """Stop the poll timer while the application waits in `poll`."""

    def poll_finished(self, now: float) -> None:
        """Start the poll timer when the application leaves `poll`."""

    def leave(self, reason: str) -> list[Action]:
        """Leave the group."""

    def coordinator_found(self, now: float) -> list[Action]:
        """Continue with a connection to the coordinator."""

    def coordinator_lost(self) -> list[Action]:
        """Find the coordinator again."""

    def commit_refused(self, code: ErrorCode, now: float) -> list[Action]:
        """Follow the error of a commit: join again, or give up all partitions."""

    def failed(self, error: OdradekError) -> list[Action]:
        """Give up; the next poll raises the error."""

    def take_assignment_error(self, now: float) -> Exception | None:
        """Return the error of this leader's assignor, if any, once."""

    def next_at(self) -> float:
        """Return when to call `tick` next."""

    def tick(self, now: float) -> list[Action]:
        """Handle what is due."""


class GroupRequests(Protocol):
    """The requests of one member."""

    @property
    def member(self) -> Membership:
        """Return the state machine whose actions it carries out."""

    @property
    def metadata_topics(self) -> set[str]:
        """Return the topics whose metadata the membership needs."""

    def subscribe(self, topics: Iterable[str], pattern: "re.Pattern[str] | None", now: float) -> list[Action]:
        """Join the group with these topics, which are those that match the pattern if there is one."""

    def metadata_updated(self, now: float) -> list[Action]:
        """Follow new metadata."""

    async def compute(self, action: Action) -> list[Action] | None:
        """Carry out an action that needs no connection; return None if it needs one."""

    async def send(self, connection: ClientConnection, action: Action) -> list[Action]:
        """Carry out an action, and return those that follow from the response."""

    async def leave(self, connection: ClientConnection, action: LeaveGroup) -> None:
        """Tell the coordinator that the member leaves."""
