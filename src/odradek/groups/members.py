"""Who is in a group: members, instance ids, the leader, and the protocol that all of them can speak."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from odradek.groups.messages import JoinRequest
from odradek.model.values import dataclass
from odradek.protocol.group_records import MemberMetadata

_MEMBER_BYTES: Final = 1024
"""What a member takes beside what it said of itself."""
_PROTOCOL_BYTES: Final = 256
"""What a protocol takes beside its name and metadata."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member. What is parked with it is answered when its record is committed."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    """It never had an answer, so it cannot send heartbeats."""
    is_loaded: bool = False
    """Only the metadata of the chosen protocol is known: a record has no more."""
    awaiting_join: JoinRequest | None = None
    awaiting_sync: object | None = None

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        names = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        return _MEMBER_BYTES + names + protocols_size(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said for a protocol; empty if it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def matches(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a join with `protocols` brings nothing new.

        Of a member out of a record the protocol that was chosen is compared: else everybody's first join after a
        failover would start a round.
        """
        if self.is_loaded:
            return all(protocol in protocols for protocol in self.protocols)
        return protocols == self.protocols


def protocols_size(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """What a member says for all its protocols takes about so many bytes in memory, however short it is."""
    return sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


class GroupMembers:
    """Members in the order of their coming. Counts are kept, since a large group joins one by one."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.size_bytes = 0
        """About what the members take in memory."""
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._supported_protocols: Counter[str] = Counter()
        self._num_awaiting_join = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        """The member, or None."""
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str) -> str | None:
        """The id that a static member has now."""
        return self._static.get(instance_id)

    @property
    def num_awaiting_join(self) -> int:
        """How many members wait for the next generation."""
        return self._num_awaiting_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        assert member.member_id not in self._members
        assert member.instance_id is None or member.instance_id not in self._static
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._add_protocols(member)
        self._num_awaiting_join += member.awaiting_join is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Let a member go; the eldest of the others leads if it was the leader."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._remove_protocols(member)
        self._num_awaiting_join -= member.awaiting_join is not None
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def replace(self, old_id: str, new: Member) -> Member:
        """Put `new` in the place of the member `old_id`, as leader too; the old one comes back."""
        was_leader = self.leader == old_id
        old = self.remove(old_id)
        assert old is not None
        self.add(new)
        if was_leader:
            self.leader = new.member_id
        return old

    def update(self, member: Member, request: JoinRequest) -> None:
        """Let a member want what `request` says."""
        self._remove_protocols(member)
        member.protocols = request.protocols
        self._add_protocols(member)
        member.is_loaded = False
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _add_protocols(self, member: Member) -> None:
        self.size_bytes += member.size_bytes
        self._supported_protocols.update({name for name, _ in member.protocols})

    def _remove_protocols(self, member: Member) -> None:
        """No name may stay behind with a count of zero: members may come and go with a new one each time."""
        self.size_bytes -= member.size_bytes
        for name in {name for name, _ in member.protocols}:
            self._supported_protocols[name] -= 1
            if not self._supported_protocols[name]:
                del self._supported_protocols[name]

    def add_awaiting_join(self, member: Member, request: JoinRequest) -> JoinRequest | None:
        """Let a join wait for the next generation; the one that waited before comes back."""
        before, member.awaiting_join = member.awaiting_join, request
        self._num_awaiting_join += before is None
        return before

    def remove_awaiting_join(self, member: Member) -> JoinRequest | None:
        """Take the join that waits, if one does."""
        request, member.awaiting_join = member.awaiting_join, None
        self._num_awaiting_join -= request is not None
        return request

    def maybe_elect_new_joined_leader(self) -> bool:
        """Let somebody lead who has joined; False if nobody has."""
        if self.leader is not None and self._members[self.leader].awaiting_join is not None:
            return True
        joined = next((member for member in self._members.values() if member.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def supports_protocols(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether one of `protocols` is spoken by every member."""
        return any(self._supported_protocols[name] == len(self._members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The next generation's protocol: each votes for the first of its own that all speak; a tie is the eldest's."""
        candidates = {name for name, count in self._supported_protocols.items() if count == len(self._members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def metadata(
        self, protocol_name: str | None, assignments: dict[str, bytes] | None = None
    ) -> tuple[MemberMetadata, ...]:
        """The members as a record has them; `assignments` by member id take the place of what they have."""
        return tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self._members.values()
        )
