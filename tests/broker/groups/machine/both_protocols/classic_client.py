"""A client of the classic protocol around a coordinator's machine, which may meet a group of either protocol.

It does as Kafka's consumers do: an eager one gives up everything before it joins again, a cooperative one keeps what it
has and joins once more when it gave up what it did not get again. As leader it assigns.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from odradek.assignors import GroupSubscription, MemberSubscription, create_assignor
from odradek.broker.groups.machine.messages import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.broker.groups.machine.consumer.protocol_world import REBALANCE_MS, SESSION_MS, Coordinator

_RETRIED = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)


class ClassicClient:
    """One client. `step` sends its next request, or follows the answer to the one before."""

    def __init__(
        self, name: str, topics: Iterable[str], *, assignor: str = "cooperative-sticky", instance_id: str | None = None
    ) -> None:
        self.name = name
        self.topics = tuple(topics)
        self.assignor = assignor
        self.more = {} if instance_id is None else {"instance_id": instance_id}
        self.instance_id = instance_id
        self.is_eager = assignor == "range"
        self.member_id = ""
        self.generation = -1
        self.owned: dict[UUID, frozenset[int]] = {}
        self.assignment: dict[UUID, frozenset[int]] = {}
        self.errors: list[ErrorCode] = []
        self.is_joined = False
        self.is_synced = False
        self.is_over = False
        """Whether it got an error that ends a client."""
        self.assignments: tuple[tuple[str, bytes], ...] = ()
        self.to: object | None = None
        self._ids = 0

    @property
    def epoch(self) -> int:
        """Return its generation."""
        return self.generation

    @property
    def count(self) -> int:
        """Return how many partitions it owns."""
        return sum(map(len, self.owned.values()))

    @property
    def lost(self) -> bool:
        """Return whether it owns partitions that it has to give up."""
        return any(numbers - self.assignment.get(topic, frozenset()) for topic, numbers in self.owned.items())

    def step(self, at: Coordinator) -> None:
        """Send the next request, and follow its answer if it is there."""
        if self.is_over:
            return
        if self.to is None:
            self.to = object()
            at.send(self._next_request(at), self.to)
            if at.commits_at_once:
                at.log.commit()
        self.collect(at)

    heartbeat = step

    def collect(self, at: Coordinator) -> None:
        """Follow the answer to the last request, if it is there."""
        reply = None if self.to is None else at.reply(self.to)
        if reply is not None:
            self.to = None
            self._follow(reply, at)

    def _next_request(self, at: Coordinator) -> Any:
        if not self.is_joined:
            return self._join_request(at)
        if not self.is_synced:
            return SyncRequest(
                member_id=self.member_id,
                generation=self.generation,
                instance_id=self.instance_id,
                assignments=self.assignments,
            )
        return HeartbeatRequest(member_id=self.member_id, instance_id=self.instance_id, generation=self.generation)

    def _join_request(self, at: Coordinator) -> JoinRequest:
        if self.is_eager:
            self.owned, self.assignment = {}, {}
        self._ids += 1
        owned = tuple(
            TopicPartition(topic.name, number)
            for topic_id, numbers in self.owned.items()
            if (topic := at.log.image.topic_by_id(topic_id)) is not None
            for number in sorted(numbers)
        )
        metadata = Subscription(topics=self.topics, owned_partitions=owned, generation_id=self.generation)
        return JoinRequest(
            member_id=self.member_id,
            new_member_id=f"{self.name}-{self._ids}",
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((self.assignor, encode_subscription(metadata)),),
            requires_member_id=True,
            can_skip_assignment=True,
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def _follow(self, reply: object, at: Coordinator) -> None:
        if isinstance(reply, JoinReply) and reply.error is ErrorCode.none:
            self.member_id, self.generation = reply.member_id, reply.generation
            self.is_joined, self.is_synced = True, False
            leads = bool(reply.members) and not reply.skip_assignment
            self.assignments = self._assigned(reply, at) if leads else ()
        elif isinstance(reply, JoinReply) and reply.error is ErrorCode.member_id_required:
            self.member_id = reply.member_id
        elif isinstance(reply, SyncReply) and reply.error is ErrorCode.none:
            self._take(reply, at)
        elif isinstance(reply, KafkaError):
            self._fail(reply.code)
        elif isinstance(reply, ErrorCode):
            self._fail(reply)
        else:
            self._fail(reply.error)  # type: ignore[attr-defined]

    def _take(self, reply: SyncReply, at: Coordinator) -> None:
        self.is_synced = True
        found: dict[UUID, set[int]] = {}
        for topic, number in decode_assignment(reply.assignment).partitions:
            if topic in at.log.image.topics:
                found.setdefault(at.log.image.topics[topic].topic_id, set()).add(number)
        self.assignment = {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
        if not self.lost:
            self.owned = dict(self.assignment)

    def revoke(self) -> None:
        """Give up what it did not get again, and join once more."""
        if self.lost:
            self.owned = dict(self.assignment)
            self.is_joined = False

    def _fail(self, error: ErrorCode) -> None:
        if error is ErrorCode.none or error in _RETRIED:
            return
        if error is ErrorCode.rebalance_in_progress:
            self.is_joined = False
            return
        self.errors.append(error)
        self.owned, self.assignment, self.generation, self.is_joined = {}, {}, -1, False
        if error in (ErrorCode.unknown_member_id, ErrorCode.group_id_not_found):
            self.member_id = ""
        elif error is not ErrorCode.illegal_generation:
            self.is_over = True

    def _assigned(self, reply: JoinReply, at: Coordinator) -> tuple[tuple[str, bytes], ...]:
        members = {}
        for each in reply.members:
            subscription = decode_subscription(each.metadata)
            members[each.member_id] = MemberSubscription(
                topics=frozenset(subscription.topics),
                owned=subscription.owned_partitions,
                instance_id=each.instance_id,
                generation=subscription.generation_id,
            )
        counts = {name: len(topic.partitions) for name, topic in at.log.image.topics.items()}
        group = GroupSubscription(partitions=counts, members=members)
        found = create_assignor(self.assignor).assign(group)
        return tuple(
            (name, encode_assignment(Assignment(partitions=tuple(partitions)))) for name, partitions in found.items()
        )

    def leave(self, at: Coordinator) -> None:
        """Leave the group."""
        leaver = LeavingMember(member_id=self.member_id, instance_id=self.instance_id)
        at.send(LeaveRequest(members=(leaver,)), object())
        self.owned, self.assignment, self.member_id, self.generation, self.is_joined = {}, {}, "", -1, False
        if at.commits_at_once:
            at.log.commit()
