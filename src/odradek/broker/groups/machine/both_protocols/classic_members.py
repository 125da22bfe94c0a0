"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members of a consumer group (KIP-848).

The coordinator computes the assignment, which a classic member gets by these responses:

| request | response |
|---|---|
| JoinGroup | the member's epoch as generation; no leader and no members, so that the client does not assign |
| SyncGroup | the member's current partitions, without those that it must revoke |
| Heartbeat | REBALANCE_IN_PROGRESS if it must rejoin: the epoch increased, it must revoke, or its partitions are free |

A member that must join or sync, but does not within its rebalance timeout, is removed.
"""

from collections.abc import Callable

from msgspec.structs import replace

from odradek.broker.coordinators.machine import CoordinatorResult, Now, Reply
from odradek.broker.groups.machine.both_protocols.migration import Migration, by_id, embedded_assignment
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup, WaitingJoin
from odradek.broker.groups.machine.consumer.consumer_groups import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    CONSUMER_SESSION,
    ConsumerGroups,
)
from odradek.broker.groups.machine.consumer.group_update import (
    MemberLookup,
    fenced_instance,
    new_member,
    replace_static,
    unknown_member,
    update_member,
    with_subscription,
)
from odradek.broker.groups.machine.consumer.member import JOINING_EPOCH, ConsumerGroupMember, MemberState
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.broker.groups.machine.deadline_queue import DeadlineKey, Deadlines
from odradek.broker.groups.machine.messages import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind
from odradek.broker.groups.machine.records import GroupRecord, answer
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
)
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import ClassicMemberMetadata, ClassicProtocol

_Result = CoordinatorResult[GroupRecord]


class ClassicMembers:
    """Handles the requests of classic members of the groups in `consumer`."""

    def __init__(
        self,
        consumer: ConsumerGroups,
        migration: Migration,
        settings: Callable[[str], ConsumerGroupSettings],
        deadlines: Deadlines[DeadlineKey],
    ) -> None:
        self._consumer = consumer
        self._migration = migration
        self._settings = settings
        self._deadlines = deadlines

    def handle(
        self, group: ConsumerGroup, request: MemberRequest, to: object, image: ClusterImage, now: Now
    ) -> _Result:
        """Handle a request of a new or known member, or of an administrator who removes members."""
        if isinstance(request, JoinRequest):
            try:
                return self._join(group, request, to, image, now)
            except KafkaError as error:
                return answer(group.group_id, to, JoinReply(error=error.code, member_id=request.member_id))
        if isinstance(request, SyncRequest):
            return self._sync(group, request, to, image, now)
        if isinstance(request, HeartbeatRequest):
            return answer(group.group_id, to, self._heartbeat(group, request, now))
        return self._leave(group, request, to, image, now)

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def _join(self, group: ConsumerGroup, request: JoinRequest, to: object, image: ClusterImage, now: Now) -> _Result:
        settings = self._settings(group.group_id)
        subscription = _subscription(group, request)
        if not request.member_id and request.instance_id is None and request.requires_member_id:
            reply = JoinReply(error=ErrorCode.member_id_required, member_id=request.new_member_id)
            return answer(group.group_id, to, reply)
        found = _find(group, request, settings.max_size)
        if found.is_new and subscription.owned_partitions:
            # The member was removed without its knowledge, and others may have its partitions. Kafka accepts the join.
            raise unknown_member(group, request.member_id)
        if found.replaced is not None and not group.members[found.replaced].is_classic:
            text = f"{request.new_member_id} replaced the last member of the consumer protocol"
            cause = Cause(kind=CauseKind.FENCED, text=text, members=(found.replaced,))
            out = self._migration.downgrade(group, [found.replaced], cause, image, now)
            if out is not None:
                # Like the others, the member joins the classic group with its next request.
                out.reply(to, JoinReply(error=ErrorCode.rebalance_in_progress))
                return out.build()
        update = update_member(
            group,
            found,
            _updated(found.member, request, subscription),
            by_id(subscription.owned_partitions, image),
            image,
            settings,
            now,
        )
        after = update.after
        waits = update.awaits_target or (update.is_deferred and after.state is not MemberState.UNREVOKED_PARTITIONS)
        reason, session_ms = request.reason, request.session_timeout_ms
        events = self._consumer.follow(group, update, session_ms, image, now, reason=reason)
        self._deadlines.clear((group.group_id, CLASSIC_JOIN, after.member_id))
        replies: tuple[Reply, ...] = ()
        if waits:
            again = replace(request, member_id=after.member_id)
            group.joins.append(WaitingJoin(after.member_id, again, to, group.assignment_epoch))
        else:
            sync_ends_ms = now.ms + max(0, request.rebalance_timeout_ms)
            self._deadlines.set((group.group_id, CLASSIC_SYNC, after.member_id), sync_ends_ms)
            replies = (Reply(to=to, value=_join_reply(after, request)),)
        return CoordinatorResult(
            key=group.group_id, records=update.records, replies=replies, events=events, is_atomic=False
        )

    # -- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------------------------------

    def _sync(self, group: ConsumerGroup, request: SyncRequest, to: object, image: ClusterImage, now: Now) -> _Result:
        try:
            member = _validate(group, request.member_id, request.instance_id, request.generation)
            _validate_protocol(member, request)
            if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._await_join(group, member, now)
                raise KafkaError(ErrorCode.rebalance_in_progress)
        except KafkaError as error:
            return answer(group.group_id, to, SyncReply(error=error.code))
        self._deadlines.clear((group.group_id, CLASSIC_SYNC, member.member_id))
        self._restart_session(group, member, now)
        reply = SyncReply(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=embedded_assignment(member, image),
        )
        return answer(group.group_id, to, reply)

    def _heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Now) -> ErrorCode:
        """Restart a valid member's session; return REBALANCE_IN_PROGRESS if the member must rejoin."""
        try:
            member = _validate(group, request.member_id, request.instance_id, request.generation)
        except KafkaError as error:
            return error.code
        self._restart_session(group, member, now)
        if not _has_to_join(group, member):
            return ErrorCode.none
        self._await_join(group, member, now)
        return ErrorCode.rebalance_in_progress

    def _leave(self, group: ConsumerGroup, request: LeaveRequest, to: object, image: ClusterImage, now: Now) -> _Result:
        """Remove members, also those of the consumer protocol: an administrator removes both by this request."""
        left: list[str] = []
        answers = []
        for each in request.members:
            member = _leaver(group, each)
            error = member if isinstance(member, ErrorCode) else ErrorCode.none
            if not isinstance(member, ErrorCode) and member.member_id not in left:
                left.append(member.member_id)
            elif error is ErrorCode.none:
                error = ErrorCode.unknown_member_id
            answers.append((each, error))
        if not left:
            return answer(group.group_id, to, tuple(answers))
        cause = Cause(kind=CauseKind.LEFT, text=f"{', '.join(left)} left", members=tuple(left))
        out = self._consumer.remove(group, left, cause, image, now)
        out.reply(to, tuple(answers))
        return out.build()

    def _restart_session(self, group: ConsumerGroup, member: ConsumerGroupMember, now: Now) -> None:
        ends_ms = now.ms + member.session_timeout_ms(self._settings(group.group_id).session_timeout_ms)
        self._deadlines.set((group.group_id, CONSUMER_SESSION, member.member_id), ends_ms)

    def _await_join(self, group: ConsumerGroup, member: ConsumerGroupMember, now: Now) -> None:
        key = (group.group_id, CLASSIC_JOIN, member.member_id)
        if key not in self._deadlines:
            self._deadlines.set(key, now.ms + max(0, member.subscription.rebalance_timeout_ms))


def _subscription(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    """Return the subscription of the request's first protocol.

    Raises `KafkaError` INCONSISTENT_GROUP_PROTOCOL if the protocols are not supported or not readable.
    """
    if request.protocol_type != PROTOCOL_TYPE or not group.supports_protocols(name for name, _ in request.protocols):
        text = f"group {group.group_id} has members of the consumer protocol, or none of these protocols"
        raise KafkaError(ErrorCode.inconsistent_group_protocol, text)
    try:
        return decode_subscription(request.protocols[0][1])
    except MalformedMessageError as error:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from error


def _find(group: ConsumerGroup, request: JoinRequest, max_size: int) -> MemberLookup:
    if request.instance_id is None:
        member_id = request.member_id or request.new_member_id
        known = group.members.get(member_id)
    else:
        known = group.static_member(request.instance_id)
        member_id = request.new_member_id
        if known is not None and not request.member_id:
            return replace_static(group, known, member_id, needs_release=False)
        if known is not None and known.member_id != request.member_id:
            raise fenced_instance(known, request.member_id)
        if known is None and request.member_id:
            raise unknown_member(group, request.member_id)
    if known is None:
        return MemberLookup(member=new_member(group, member_id, max_size), records=[], is_new=True)
    if known.has_left_temporarily:
        known = replace(known, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    return MemberLookup(member=known, records=[])


def _updated(member: ConsumerGroupMember, request: JoinRequest, subscription: Subscription) -> ConsumerGroupMember:
    protocols = tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in request.protocols)
    return with_subscription(
        member,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms, supported_protocols=protocols
        ),
    )


def _join_reply(member: ConsumerGroupMember, request: JoinRequest) -> JoinReply:
    return JoinReply(
        member_id=member.member_id,
        generation=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
    )


def _validate(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerGroupMember:
    """Return a classic member. Raises `KafkaError` if it is unknown, replaced, or in another generation."""
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is not None and member.member_id != member_id:
        raise fenced_instance(member, member_id)
    if member is None or not member.is_classic:
        raise unknown_member(group, member_id)
    if member.epoch != generation:
        raise KafkaError(ErrorCode.illegal_generation)
    return member


def _validate_protocol(member: ConsumerGroupMember, request: SyncRequest) -> None:
    name = member.classic_protocols[0].name if member.classic_protocols else None
    for theirs, ours in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol_name, name)):
        if theirs is not None and theirs != ours:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)


def _has_to_join(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)


def _leaver(group: ConsumerGroup, each: LeavingMember) -> ConsumerGroupMember | ErrorCode:
    """Return the member that leaves, or an error code; for a static member the instance id suffices."""
    if each.instance_id is None:
        member = group.members.get(each.member_id)
    else:
        member = group.static_member(each.instance_id)
        if member is not None and each.member_id and member.member_id != each.member_id:
            return ErrorCode.fenced_instance_id
    return ErrorCode.unknown_member_id if member is None else member
