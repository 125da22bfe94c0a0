"""The members of a classic group: instance ids, the leader, and the protocols that all members support."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from odradek.broker.groups.machine.messages import JoinRequest, member_size
from odradek.protocol.internal_records.group_records import MemberMetadata


class AwaitingJoin(NamedTuple):
    """A JoinGroup request that waits for the next generation, and the receiver of its reply."""

    request: JoinRequest
    to: object


class Member(Struct, kw_only=True, eq=False):
    """One member's state, which is not durable. Its assignment is in the group's record."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    is_new: bool = False
    """Whether the member has had no response yet, so that it cannot send heartbeats."""
    is_loaded: bool = False
    """Whether the member was loaded from a record, which has only the chosen protocol."""
    former_epoch: int | None = None
    """The member's epoch before its group was converted from the consumer protocol; valid until the next generation."""
    awaiting_join: AwaitingJoin | None = None
    awaiting_sync: object | None = None
    """The receiver of the reply to the waiting SyncGroup request."""

    @property
    def size_bytes(self) -> int:
        """Return the member's approximate memory."""
        return member_size(self.protocols, self.member_id, self.client_id, self.instance_id)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def matches(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether `protocols` are those of the member's last join.

        A loaded member has only the chosen protocol, so only this one is compared: the first join after a failover must
        not start a rebalance.
        """
        if self.is_loaded:
            return all(protocol in protocols for protocol in self.protocols)
        return protocols == self.protocols


class GroupMembers(Struct, eq=False, gc=False):
    """The members in the order of joining, with counters that make a join take constant time."""

    leader: str | None = None
    size_bytes: int = 0
    """Approximate memory of the members."""
    _members: dict[str, Member] = {}
    _static: dict[str, str] = {}
    _supported_protocols: dict[str, int] = {}
    _num_awaiting_join: int = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str) -> str | None:
        return self._static.get(instance_id)

    @property
    def instance_ids(self) -> Collection[str]:
        return self._static.keys()

    @property
    def num_awaiting_join(self) -> int:
        """Return the number of members whose join waits for the next generation."""
        return self._num_awaiting_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self._members
        assert member.instance_id is None or member.instance_id not in self._static
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._add_protocols(member)
        self._num_awaiting_join += member.awaiting_join is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists; if it was the leader, the oldest remaining member becomes leader."""
        member = self._members.pop(member_id, None)
        if member is None:
            return
        self._remove_protocols(member)
        self._num_awaiting_join -= member.awaiting_join is not None
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old_id: str, new: Member) -> None:
        """Replace the member `old_id` by `new`, which becomes leader if `old_id` was."""
        assert old_id in self._members
        was_leader = self.leader == old_id
        self.remove(old_id)
        self.add(new)
        if was_leader:
            self.leader = new.member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        self._remove_protocols(member)
        member.protocols = request.protocols
        self._add_protocols(member)
        member.is_loaded = False
        member.former_epoch = None
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _add_protocols(self, member: Member) -> None:
        self.size_bytes += member.size_bytes
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._supported_protocols[name] = self._supported_protocols.get(name, 0) + 1

    def _remove_protocols(self, member: Member) -> None:
        """Subtract the member from the counters; delete zero counters, since each join may have new names."""
        self.size_bytes -= member.size_bytes
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._supported_protocols[name] -= 1
            if not self._supported_protocols[name]:
                del self._supported_protocols[name]

    def add_awaiting_join(self, member: Member, join: AwaitingJoin) -> AwaitingJoin | None:
        """Store a join that waits for the next generation; return the member's earlier waiting join, if any."""
        before, member.awaiting_join = member.awaiting_join, join
        self._num_awaiting_join += before is None
        return before

    def remove_awaiting_join(self, member: Member) -> AwaitingJoin | None:
        join, member.awaiting_join = member.awaiting_join, None
        self._num_awaiting_join -= join is not None
        return join

    def maybe_elect_new_joined_leader(self) -> bool:
        """Elect another leader if the current one has not joined; return False if no member has joined."""
        if self.leader is not None and self._members[self.leader].awaiting_join is not None:
            return True
        joined = next((member for member in self._members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def supports_protocols(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether at least one of `protocols` is supported by every member."""
        return any(self._supported_protocols.get(name, 0) == len(self._members) for name, _ in protocols)

    @property
    def has_common_protocol(self) -> bool:
        """Return whether there is a protocol that all members support."""
        return any(count == len(self._members) for count in self._supported_protocols.values())

    def select_protocol(self) -> str:
        """Return the protocol with the most votes; a member votes for its first protocol that all members support."""
        candidates = {name for name, count in self._supported_protocols.items() if count == len(self._members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def metadata(self, protocol_name: str | None, assignments: Mapping[str, bytes]) -> tuple[MemberMetadata, ...]:
        """Return the members in the format of the group's record; `assignments` is by member id."""
        return tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self._members.values()
        )
