"""The groups of one coordinator: one per id, of any protocol, and what the coordinator asks of each."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.messages import CommitRequest, FetchOffsetsRequest
from odradek.broker.groups.machine.records import GroupRecord
from odradek.model import ErrorCode


class Group(Protocol):
    """A group of any protocol."""

    group_id: str

    @property
    def kind(self) -> str:
        """Return the type of the group in ListGroups."""

    @property
    def state(self) -> str:
        """Return the state of the group in ListGroups."""

    @property
    def protocol_type(self) -> str | None:
        """Return the type of the members' protocol; None if none has joined."""

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of the members."""

    def member_size_bytes(self, member_id: str) -> int:
        """Return the approximate memory of a member; 0 if it is unknown."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def is_deletable(self) -> bool:
        """Return whether the group has no member and no id was given to one that has yet to join."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the subscribed topics; None if the protocol type is not `consumer` or a subscription is unreadable."""

    @property
    def offset_expiration_condition(self) -> tuple[int, frozenset[str]] | None:
        """Return the earliest start of retention, and the topics whose offsets do not expire (KIP-211).

        The start is in ms since 1970; -1 if retention starts at each commit. Return None if no offset may expire.
        """

    def validate_commit(self, request: CommitRequest, now: Now) -> ErrorCode:
        """Return an error if the member, or a client that is not a member, may not commit offsets now."""

    def validate_fetch(self, request: FetchOffsetsRequest) -> ErrorCode:
        """Return an error if the request names a member or an epoch that may not fetch offsets now."""

    def tombstones(self) -> Sequence[GroupRecord]:
        """Return the tombstones of a group without members."""


_G = TypeVar("_G")


class GroupRegistry:
    """The groups by id, and the memory of their members."""

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}
        self.size_bytes = 0
        self._sizes: dict[str, int] = {}

    def of_type(self, kind: type[_G]) -> list[_G]:
        return [group for group in self.by_id.values() if isinstance(group, kind)]

    def put(self, group: Group) -> None:
        """Add a group, or count its members again."""
        self.by_id[group.group_id] = group
        self._account(group.group_id, group.size_bytes)

    def remove(self, group_id: str) -> None:
        self.by_id.pop(group_id, None)
        self._account(group_id, 0)

    def _account(self, group_id: str, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.pop(group_id, 0)
        if size_bytes:
            self._sizes[group_id] = size_bytes
