"""The groups of the consumer protocol of one coordinator: heartbeats, deadlines, removal of members."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final

from odradek.broker.coordinators.machine import CoordinatorResult, Now, Reply
from odradek.broker.groups.machine.consumer.consumer_group import (
    NO_SUBSCRIPTION,
    ConsumerGroup,
    WaitingJoin,
    epoch_record,
    tombstones,
)
from odradek.broker.groups.machine.consumer.group_trace import GroupTrace, cause_of
from odradek.broker.groups.machine.consumer.group_update import (
    MemberUpdate,
    assign,
    leave_temporarily,
    leaving_member,
    regexes_resolved,
)
from odradek.broker.groups.machine.consumer.heartbeat import heartbeat, is_settled, reply_to, unchanged, validate
from odradek.broker.groups.machine.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from odradek.broker.groups.machine.consumer.messages import (
    ConsumerGroupDescription,
    ConsumerGroupHeartbeatReply,
    ConsumerGroupHeartbeatRequest,
    MemberFenced,
)
from odradek.broker.groups.machine.consumer.regex_resolver import STEP_PAUSE_MS, DeniedTopics, RegexResolver
from odradek.broker.groups.machine.consumer.subscriptions import existing_topics_of, metadata_hash
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings, preferred_assignor
from odradek.broker.groups.machine.deadline_queue import DeadlineKey, Deadlines
from odradek.broker.groups.machine.rebalance_trace import Cause, CauseKind, RebalanceCompleted
from odradek.broker.groups.machine.records import ConsumerGroupRecord, GroupRecord, ResultBuilder, answer
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import probe
from odradek.protocol.internal_records.group_records import ConsumerGroupMetadataKey

CONSUMER_SESSION: Final = "consumer session"
REVOCATION: Final = "revocation"
CLASSIC_JOIN: Final = "classic join"
CLASSIC_SYNC: Final = "classic sync"
"""Kinds of deadlines of one member; only members of the classic protocol have `CLASSIC_*`."""
ASSIGNMENT: Final = "assignment"
"""The deadline of a group: compute its targets, or answer requests that waited for them."""
REGEXES: Final = "regexes"
"""The deadline of a group: match regular expressions with topics."""
_OF_MEMBERS: Final = (CONSUMER_SESSION, REVOCATION, CLASSIC_JOIN, CLASSIC_SYNC)
DEADLINES: Final = (*_OF_MEMBERS, ASSIGNMENT, REGEXES)

Downgrade = Callable[[ConsumerGroup, Collection[str], Cause, ClusterImage, Now], ResultBuilder | None]
"""The type of `Migration.downgrade`."""


class ConsumerGroups:
    """The heartbeats and deadlines of consumer groups. `settings` returns the settings of a group id."""

    def __init__(
        self,
        settings: Callable[[str], ConsumerGroupSettings],
        deadlines: Deadlines[DeadlineKey],
        downgrade: Downgrade,
    ) -> None:
        self._settings = settings
        self._deadlines = deadlines
        self._downgrade = downgrade
        self._traces: dict[str, GroupTrace] = {}
        self._resolvers: defaultdict[str, RegexResolver] = defaultdict(RegexResolver)

    def forget(self, group_id: str) -> None:
        """Drop what is kept beside a group: its trace, its resolver, and its deadlines that have no member."""
        self.forget_trace(group_id)
        self._resolvers.pop(group_id, None)
        for kind in (ASSIGNMENT, REGEXES):
            self._deadlines.clear((group_id, kind, ""))

    def rebuild(self, group: ConsumerGroup, now: Now) -> None:
        """Drop waiting requests and the trace, mark topics for a check, and set missing deadlines of members.

        After loading, sessions and revocations start anew; after a failed append their deadlines continue.
        """
        group.needs_refresh = True
        group.joins.clear()
        self.forget(group.group_id)
        self.start_sessions(group, now)
        for member_id, member in group.members.items():
            is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
            if is_revoking and (group.group_id, REVOCATION, member_id) not in self._deadlines:
                self._set_revocation(group, member, now)

    def forget_trace(self, group_id: str) -> None:
        """Drop a group's rebalance trace after its records could not be appended."""
        self._traces.pop(group_id, None)

    def start_sessions(self, group: ConsumerGroup, now: Now) -> None:
        """Start the sessions of members without one: loaded members, and members of a converted classic group."""
        of_group_ms = self._settings(group.group_id).session_timeout_ms
        for member_id, member in group.members.items():
            key = (group.group_id, CONSUMER_SESSION, member_id)
            if key not in self._deadlines:
                self._deadlines.set(key, now.ms + member.session_timeout_ms(of_group_ms))

    def _set_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember, now: Now) -> None:
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        self._deadlines.set((group.group_id, REVOCATION, member.member_id), now.ms + timeout_ms)

    def revoking_ms(self, group_id: str, member: ConsumerGroupMember, now: Now) -> int:
        """Return the ms that this coordinator has waited for a member to revoke partitions; 0 if it does not wait."""
        until_ms = self._deadlines.at_ms((group_id, REVOCATION, member.member_id))
        timeout_ms = max(0, member.subscription.rebalance_timeout_ms)
        return 0 if until_ms is None else max(0, now.ms - (until_ms - timeout_ms))

    def clear_deadlines(self, group_id: str, member_id: str) -> None:
        for kind in _OF_MEMBERS:
            self._deadlines.clear((group_id, kind, member_id))

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        key: str,
        group: ConsumerGroup | None,
        request: ConsumerGroupHeartbeatRequest,
        to: object,
        image: ClusterImage,
        now: Now,
        *,
        before: Sequence[GroupRecord] = (),
    ) -> CoordinatorResult[GroupRecord]:
        """Handle a heartbeat. The reply may be a `KafkaError`. A new member's reply may wait for its first target.

        `before` are records to write first; they delete a classic group, or convert it to `group`. The records of a
        conversion are one batch.
        """
        is_converted = group is not None and bool(before)
        settings = self._settings(key)
        if group is not None and is_settled(group, request) and not self._is_outdated(group, settings, now):
            self._deadlines.set((key, CONSUMER_SESSION, request.member_id), now.ms + settings.session_timeout_ms)
            return answer(key, to, unchanged(request, settings))
        try:
            validate(request, settings)
            if group is None:
                if request.member_epoch != JOINING_EPOCH:
                    raise KafkaError(ErrorCode.group_id_not_found, f"Group {key} not found.")
                group = ConsumerGroup(key)
            if request.member_epoch < JOINING_EPOCH:
                return self._leave(group, request, to, image, now)
            update = heartbeat(group, request, image, settings, now)
        except KafkaError as error:
            return answer(key, to, error)
        events = self.follow(group, update, settings.session_timeout_ms, image, now, denied=request.denied_topics)
        replies: tuple[Reply, ...] = (Reply(to=to, value=reply_to(request, update, settings)),)
        if update.awaits_target:
            group.joins.append(WaitingJoin(request.member_id, request, to, group.assignment_epoch))
            replies = ()
        # Large targets do not fit into one batch. The group's epoch comes before the targets and the target epoch after
        # them, so that after a failure in between the next heartbeat computes the targets again.
        records = (*before, *update.records)
        return CoordinatorResult(key=key, records=records, replies=replies, events=events, is_atomic=is_converted)

    def follow(
        self,
        group: ConsumerGroup,
        update: MemberUpdate,
        session_timeout_ms: int,
        image: ClusterImage,
        now: Now,
        *,
        reason: str = "",
        denied: DeniedTopics | None = None,
    ) -> list[RebalanceCompleted]:
        """Set and clear the deadlines that `update` changes, trace it, and return the rebalances that it ends.

        `reason` is the client's reason, for a rebalance that `update` begins; `denied` its permissions for expressions.
        """
        key, after = group.group_id, update.after
        regex = after.subscription.subscribed_topic_regex
        regexes = group.subscribed_regexes | ({regex} if regex else set())
        self._schedule_regexes(key, regexes, group.regexes, image, now, denied)
        self._deadlines.set((key, CONSUMER_SESSION, after.member_id), now.ms + session_timeout_ms)
        if update.replaced is not None:
            self.clear_deadlines(key, update.replaced)
        if update.is_deferred and (key, ASSIGNMENT, "") not in self._deadlines:  # an earlier one answers joins
            self._deadlines.set((key, ASSIGNMENT, ""), group.next_assignment_ms)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.clear((key, REVOCATION, after.member_id))
        elif update.changes_assignment:
            self._set_revocation(group, after, now)
        trace = self._trace(group, image)
        if trace is None or not (update.changes_assignment or update.awaits_target or update.epoch > group.epoch):
            return []
        ended = []
        if update.epoch > group.epoch:
            ended += trace.epoch_changed(update.epoch, cause_of(update, reason), now)
        if update.assignment_epoch > group.assignment_epoch:
            trace.assigned(self._assignor(group), now)
        return ended + trace.member_updated(update, image, now)

    def _is_outdated(self, group: ConsumerGroup, settings: ConsumerGroupSettings, now: Now) -> bool:
        """Return whether the group's regular expressions wait for a heartbeat's permissions."""
        return bool(group.regexes) and self._resolvers[group.group_id].is_outdated(settings, now)

    def _schedule_regexes(
        self,
        group_id: str,
        regexes: Collection[str],
        known: Collection[str],
        image: ClusterImage,
        now: Now,
        denied: DeniedTopics | None = None,
    ) -> None:
        """Set the deadline to resolve `regexes` if it is not set and something changed."""
        key = (group_id, REGEXES, "")
        if regexes and key not in self._deadlines:
            resolver = self._resolvers[group_id]
            at_ms = resolver.next_ms(regexes, known, image, self._settings(group_id), now, denied)
            if at_ms is not None:
                self._deadlines.set(key, at_ms)

    def _resolve_regexes(self, group: ConsumerGroup, image: ClusterImage, now: Now) -> CoordinatorResult[GroupRecord]:
        """Match expressions with the next topic names. At the end, record what changed, and the group's next epoch."""
        key = group.group_id
        found = self._resolvers[key].step(group, image, self._settings(key), now)
        if found is None:
            self._deadlines.set((key, REGEXES, ""), now.ms + STEP_PAUSE_MS)
            return CoordinatorResult(key=key)
        self._schedule_regexes(key, group.subscribed_regexes, found, image, now)
        records = regexes_resolved(group, found, image, now)
        trace = self._trace(group, image)
        events: Sequence[object] = ()
        if trace is not None and any(isinstance(each.key, ConsumerGroupMetadataKey) for each in records):
            cause = Cause(kind=CauseKind.METADATA_CHANGED, text="regular expressions match other topics")
            events = trace.epoch_changed(group.epoch + 1, cause, now)
        return CoordinatorResult(key=key, records=records, events=events)

    def _trace(self, group: ConsumerGroup, image: ClusterImage) -> GroupTrace | None:
        """Return the trace of a group, created if needed; None if rebalances are not traced."""
        if not self._settings(group.group_id).traces_rebalances:
            return None
        trace = self._traces.get(group.group_id)
        if trace is None:
            trace = self._traces[group.group_id] = GroupTrace(group, image)
        return trace

    def _assignor(self, group: ConsumerGroup) -> str:
        assignors = self._settings(group.group_id).assignors
        return preferred_assignor(group.members, assignors) if assignors else ""

    def take_join(self, group: ConsumerGroup, now: Now) -> WaitingJoin | None:
        """Remove and return the first waiting request if its targets are computed or its member has left; else None."""
        if not group.joins:
            return None
        first = group.joins[0]
        if group.assignment_epoch <= first.after_epoch and first.member_id in group.members:
            return None
        self._deadlines.set((group.group_id, ASSIGNMENT, ""), now.ms)
        return group.joins.pop(0)

    def _assign(self, group: ConsumerGroup, image: ClusterImage, now: Now) -> CoordinatorResult[GroupRecord]:
        """Compute the targets of the group's epoch if not done; before `next_assignment_ms` set the deadline again."""
        key = group.group_id
        if group.epoch <= group.assignment_epoch:
            return CoordinatorResult(key=key)
        if now.ms < group.next_assignment_ms:
            probe("groups: an assignment is deferred")
            self._deadlines.set((key, ASSIGNMENT, ""), group.next_assignment_ms)
            return CoordinatorResult(key=key)
        try:
            records = assign(group, image, self._settings(key), now)
        except KafkaError as error:
            probe("groups: an assignor fails")
            replies = tuple(Reply(to=waiting.to, value=error) for waiting in group.joins)
            group.joins.clear()
            return CoordinatorResult(key=key, replies=replies)
        self._deadlines.set((key, ASSIGNMENT, ""), now.ms)
        trace = self._trace(group, image)
        if trace is not None:
            trace.assigned(self._assignor(group), now)
        return CoordinatorResult(key=key, records=records, is_atomic=False)

    # -- members that go -----------------------------------------------------------------------------------------------

    def _leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, to: object, image: ClusterImage, now: Now
    ) -> CoordinatorResult[GroupRecord]:
        member = leaving_member(group, request)
        reply = ConsumerGroupHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            self._deadlines.clear((group.group_id, REVOCATION, member.member_id))
            probe("groups: a static member leaves temporarily")
            return answer(group.group_id, to, reply, leave_temporarily(group, member))
        cause = Cause(kind=CauseKind.LEFT, text=f"{member.member_id} left", members=(member.member_id,))
        out = self.remove(group, [member.member_id], cause, image, now)
        out.reply(to, reply)
        return out.build()

    def remove(
        self, group: ConsumerGroup, member_ids: Sequence[str], cause: Cause, image: ClusterImage, now: Now
    ) -> ResultBuilder:
        """Remove members; `Migration.downgrade` may convert the group to a classic one.

        The next heartbeat of another member computes new targets.
        """
        out = self._downgrade(group, member_ids, cause, image, now)
        if out is not None:
            for member_id in group.members:
                self.clear_deadlines(group.group_id, member_id)
            trace = self._traces.pop(group.group_id, None)
            if trace is not None:
                out.events[:0] = trace.ended(now)
            return out
        out = ResultBuilder(group.group_id)
        out.records += [record for member_id in member_ids for record in tombstones(group, member_id)]
        out.records.append(epoch_record(group, group.metadata_hash))
        out.events += self._removed(group, member_ids, cause, image, now)
        return out

    def _removed(
        self, group: ConsumerGroup, member_ids: Sequence[str], cause: Cause, image: ClusterImage, now: Now
    ) -> list[RebalanceCompleted]:
        """Clear the deadlines of members to remove, trace the removal, and return the rebalances that it ends."""
        for member_id in member_ids:
            self.clear_deadlines(group.group_id, member_id)
        trace = self._trace(group, image)
        if trace is None:
            return []
        since_ms = now.ms
        if cause.kind is CauseKind.SESSION_EXPIRED:
            member = group.members[member_ids[0]]
            since_ms -= member.session_timeout_ms(self._settings(group.group_id).session_timeout_ms)
        ended = trace.epoch_changed(group.epoch + 1, cause, now)
        trace.members_removed(member_ids, since_ms, timed_out=cause.kind is CauseKind.REBALANCE_TIMEOUT)
        return ended + trace.maybe_empty(now)

    def expire(
        self, group: ConsumerGroup, place: DeadlineKey, image: ClusterImage, now: Now
    ) -> CoordinatorResult[GroupRecord]:
        """Handle a deadline that has passed: remove its member or, for `ASSIGNMENT`, compute targets."""
        group_id, kind, member_id = place
        if kind == ASSIGNMENT:
            return self._assign(group, image, now)
        if kind == REGEXES:
            return self._resolve_regexes(group, image, now)
        member = group.members.get(member_id)
        if member is None:
            return CoordinatorResult(key=group_id)
        if kind == REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return CoordinatorResult(key=group_id)
        reason = _reason(kind, member)
        probe("groups: a member of the consumer protocol is fenced")
        is_silent = kind == CONSUMER_SESSION
        cause = Cause(
            kind=CauseKind.SESSION_EXPIRED if is_silent else CauseKind.REBALANCE_TIMEOUT,
            text=f"{member_id} was removed: {reason}",
            members=(member_id,),
        )
        out = self.remove(group, [member_id], cause, image, now)
        out.events.append(MemberFenced(group_id=group_id, member_id=member_id, reason=reason))
        return out.build()

    # -- other requests ------------------------------------------------------------------------------------------------

    def describe(self, group: ConsumerGroup) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(
            group_id=group.group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=self._assignor(group),
            members=tuple((member, group.target(member.member_id)) for member in group.members.values()),
        )


def _reason(kind: str, member: ConsumerGroupMember) -> str:
    if kind == CONSUMER_SESSION:
        return "its session expired"
    within = f"within {member.subscription.rebalance_timeout_ms} ms"
    if kind == REVOCATION:
        return f"it did not leave epoch {member.epoch} {within}"
    return f"it sent no {'JoinGroup' if kind == CLASSIC_JOIN else 'SyncGroup'} {within}"


def repair(group: ConsumerGroup, image: ClusterImage) -> list[ConsumerGroupRecord]:
    """Return the records that repair a loaded group; empty if its records are consistent.

    Records may be missing: a later release wrote them, or a damaged disk lost them. Members without a subscription are
    removed, and rejoin. A later epoch makes the next heartbeat compute new targets, for which members would wait.
    """
    if not group.members and group.assignment_epoch <= group.epoch:
        return []
    unknown = [each.member_id for each in group.members.values() if each.subscription is NO_SUBSCRIPTION]
    of_members = max((member.epoch for member in group.members.values()), default=0)
    if not unknown and of_members <= group.assignment_epoch <= group.epoch and not _lacks_targets(group, image):
        return []
    records = [record for member_id in unknown for record in tombstones(group, member_id)]
    return [*records, epoch_record(group, group.metadata_hash, after=max(of_members, group.assignment_epoch))]


def _lacks_targets(group: ConsumerGroup, image: ClusterImage) -> bool:
    """Return whether members and targets differ, or a subscribed partition is in no target or in several.

    Return False if the next heartbeat computes the group's targets anyway.
    """
    if group.epoch > group.assignment_epoch:
        return False
    names = existing_topics_of(group.subscriptions, group.regexes, image)
    topics = [image.topics[name] for name in names]
    known = {topic.topic_id for topic in topics}
    assigned = [
        (topic_id, number)
        for target in group.targets.values()
        for topic_id, numbers in target.items()
        if topic_id in known
        for number in numbers
    ]
    is_whole = len(set(assigned)) == len(assigned) == sum(len(topic.partitions) for topic in topics)
    if is_whole and group.targets.keys() == group.members.keys():
        return False
    return group.metadata_hash == metadata_hash(names, image)
