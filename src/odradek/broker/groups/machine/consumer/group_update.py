"""The effects of a member's request on its group: the epoch, the targets, and the member's next step (KIP-848).

The records come in this order: the group's epoch, the member, the topics of regular expressions, targets and their
epoch, and the member's current assignment.

The first change computes targets at once. Later changes wait until `assignment_interval_ms` have passed since then
(less in a small group), so that thousands of members that join together cost few computations (compare KIP-1263).
Meanwhile the group's epoch is later than the target epoch, and members continue towards the existing targets.
"""

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Set
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.consumer_group import (
    ConsumerGroup,
    current_record,
    epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstones,
)
from odradek.broker.groups.machine.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
    MemberState,
    Topics,
)
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.consumer.subscriptions import existing_topics_of, metadata_hash
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings, compute_targets
from odradek.broker.groups.machine.records import ConsumerGroupRecord
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import transition
from odradek.protocol.internal_records.group_records import ConsumerGroupMemberMetadataValue


class MemberLookup(Struct, frozen=True, kw_only=True):
    """The member that sent a request, without the request's changes."""

    member: ConsumerGroupMember
    records: list[ConsumerGroupRecord]
    """The records that replace a static member's former id; else empty."""
    is_new: bool = False
    replaced: str | None = None
    """The former id of a static member that returned under a new id."""


def find_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, max_size: int) -> MemberLookup:
    """Return the known or new member that sent a heartbeat. Raises `KafkaError` if it may not join or is fenced."""
    joins = request.member_epoch == JOINING_EPOCH
    known = group.members.get(request.member_id)
    if request.instance_id is not None:
        holder = group.static_member(request.instance_id)
        if holder is not None and holder.member_id != request.member_id:
            if not joins:
                raise fenced_instance(holder, request.member_id)
            return replace_static(group, holder, request.member_id, needs_release=not holder.is_classic)
        known = holder
    if known is None:
        if not joins:
            raise unknown_member(group, request.member_id)
        return MemberLookup(member=new_member(group, request.member_id, max_size), records=[], is_new=True)
    if known.has_left_temporarily and joins:
        return MemberLookup(member=replace(known, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH), records=[])
    check_epoch(known, request)
    return MemberLookup(member=known, records=[])


def new_member(group: ConsumerGroup, member_id: str, max_size: int) -> ConsumerGroupMember:
    """Return a member without a subscription. Raises `KafkaError` if the group has `max_size` members."""
    if len(group.members) >= max_size:
        text = f"group {group.group_id} has group.consumer.max.size={max_size} members"
        raise KafkaError(ErrorCode.group_max_size_reached, text)
    subscription = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=(),
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=None,
    )
    return ConsumerGroupMember(member_id=member_id, subscription=subscription)


def replace_static(
    group: ConsumerGroup, holder: ConsumerGroupMember, member_id: str, *, needs_release: bool
) -> MemberLookup:
    """Replace the static member `holder` by one with the id `member_id`, which gets its partitions.

    With `needs_release` (consumer protocol) raise `KafkaError` UNRELEASED_INSTANCE_ID unless `holder` has left
    temporarily; a classic static member returns without leaving.
    """
    if needs_release and not holder.has_left_temporarily:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {holder.subscription.instance_id} cannot join the group "
            f"because the instance id is owned by {holder.member_id} member.",
        )
    member = replace(holder, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    records = [*tombstones(group, holder.member_id), member_record(group, member)]
    records.append(target_record(group, member_id, group.target(holder.member_id)))
    # If another member has the new id, it is overwritten.
    return MemberLookup(member=member, records=records, replaced=holder.member_id, is_new=member_id in group.members)


def check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise `KafkaError` FENCED_MEMBER_EPOCH unless the request has the member's current or previous epoch, or 0.

    With the previous epoch (after a lost response) the request must list owned partitions, all assigned to the member.
    Kafka refuses epoch 0 of a known member until its session expires.
    """
    received = request.member_epoch
    if received in (member.epoch, JOINING_EPOCH):
        return
    if received == member.previous_epoch and request.owned is not None and _is_subset(request.owned, member.assigned):
        return
    word = "greater" if received > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {word} member epoch ({received}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}.")


def fenced_instance(holder: ConsumerGroupMember, member_id: str) -> KafkaError:
    """Return the error for the static member `member_id`, whose instance id `holder` has now."""
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"Static member {member_id} with instance id {holder.subscription.instance_id} was fenced by member "
        f"{holder.member_id}.",
    )


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """Return the member that sent a request to leave. Raises `KafkaError` UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
    else:
        member = group.static_member(request.instance_id)
    if member is None:
        raise unknown_member(group, request.member_id)
    if member.member_id != request.member_id:
        raise fenced_instance(member, request.member_id)
    return member


def leave_temporarily(group: ConsumerGroup, member: ConsumerGroupMember) -> list[ConsumerGroupRecord]:
    """Return the records of a static member that leaves temporarily; it keeps all partitions but those to revoke."""
    return [current_record(group, replace(member, epoch=LEAVING_STATIC_EPOCH, revoking=NO_PARTITIONS))]


class Target(Struct, frozen=True, kw_only=True):
    """The target assignment of a member."""

    epoch: int
    """The group's epoch for which the target was computed."""
    partitions: Assignment
    subscribed: Set[uuid.UUID]
    """The ids of the topics that the member subscribes to now; the target may have others."""
    subscription_changed: bool = False


def reconcile(
    member: ConsumerGroupMember,
    target: Target,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> ConsumerGroupMember:
    """Return the member after its next step towards its target (KIP-848, "Member Assignment Reconciliation").

    | state | when | next |
    |---|---|---|
    | STABLE | the target has a later epoch | revoke partitions outside the target; if none, add free ones of it |
    | UNREVOKED_PARTITIONS | the member no longer reports partitions to revoke | epoch + 1, then as STABLE |
    | UNRELEASED_PARTITIONS | at each heartbeat | add partitions that became free |
    | STABLE, UNREVOKED_PARTITIONS | its subscription lost topics | revoke their partitions in the same epoch |

    A partition is free if no member has it or is revoking it, so it never has two owners; only those that move stop.
    `owned` are the partitions that the member reports to own; None if not reported. `is_free` returns whether no other
    member has or is revoking a partition. Raises `KafkaError` FENCED_MEMBER_EPOCH if the member's state is UNKNOWN,
    unless the member reports that it owns no partition.
    """
    if member.state is MemberState.STABLE:
        if target.epoch > member.epoch:
            return _advance(member, member.epoch, target, owned, is_free)
        return _drop_unsubscribed(member, target, owned) if target.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(member, target, owned) if target.subscription_changed else member
        return _advance(member, min(member.epoch + 1, target.epoch), target, owned, is_free)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(member, member.epoch, target, owned, is_free)
    if owned is None or owned:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"member {member.member_id} has a state of another release; it must give up its partitions and rejoin",
        )
    return _advance(member, target.epoch, target, owned, is_free)


def _advance(
    member: ConsumerGroupMember,
    epoch: int,
    target: Target,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> ConsumerGroupMember:
    assigned: dict[uuid.UUID, frozenset[int]] = {}
    revoking: dict[uuid.UUID, frozenset[int]] = {}
    added: dict[uuid.UUID, frozenset[int]] = {}
    waits = False
    for topic_id in {**target.partitions, **member.assigned}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in target.subscribed else frozenset()
        current = member.assigned.get(topic_id, frozenset())
        kept, missing = current & wanted, wanted - current
        free = frozenset(number for number in missing if is_free(topic_id, number))
        waits = waits or len(free) < len(missing)
        for found, into in ((kept, assigned), (current - kept, revoking), (free, added)):
            if found:
                into[topic_id] = found
    if _owns_any(owned, revoking):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, numbers in added.items():
        assigned[topic_id] = assigned.get(topic_id, frozenset()) | numbers
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target.epoch, state, assigned, NO_PARTITIONS)


def _drop_unsubscribed(member: ConsumerGroupMember, target: Target, owned: Assignment | None) -> ConsumerGroupMember:
    """Make the member revoke the partitions of topics that it no longer subscribes to."""
    kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id in target.subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic_id in sorted(member.assigned.keys() - kept.keys()):
        revoking[topic_id] = revoking.get(topic_id, frozenset()) | member.assigned[topic_id]
    if _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return replace(member, assigned=kept)


def _moved(
    member: ConsumerGroupMember, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
) -> ConsumerGroupMember:
    transition("consumer group member", member.state.name, state.name)
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Return whether the member may still own any of `partitions`; True if it does not report what it owns."""
    if not partitions:
        return False
    if owned is None:
        return True
    return any(numbers & owned.get(topic_id, frozenset()) for topic_id, numbers in partitions.items())


_ENTRIES_PER_MS: Final = 100
"""The pause between two computations is 1 ms per this many members and partitions, about one computation's time."""


class MemberUpdate(Struct, frozen=True, kw_only=True):
    """The effects of a request from a member that joins or stays."""

    records: list[ConsumerGroupRecord]
    before: ConsumerGroupMember
    after: ConsumerGroupMember
    """The member after `records` are applied."""
    changes_assignment: bool
    replaced: str | None
    """The former id of a static member that returned under a new id."""
    awaits_target: bool
    """Whether the member joins and its first target is not computed yet."""
    is_new: bool
    has_changed: bool
    """Whether the member is new, or subscribes to other topics than before."""
    epoch: int
    assignment_epoch: int
    """The epochs of the group and of its targets after `records` are applied."""

    @property
    def is_deferred(self) -> bool:
        """Return whether the targets of the group's epoch are computed later."""
        return self.epoch > self.assignment_epoch


def update_member(
    group: ConsumerGroup,
    found: MemberLookup,
    updated: ConsumerGroupMember,
    owned: Assignment | None,
    image: ClusterImage,
    settings: ConsumerGroupSettings,
    now: Now,
) -> MemberUpdate:
    """Return the effects of a request that changes a member to `updated`.

    `found` is the member before the request. `owned` are the partitions that it reports to own, None if not reported.
    Expressions that are not resolved match no topic. Raises `KafkaError` if an assignor fails, or if the member's state
    is UNKNOWN, unless it reports that it owns no partition.
    """
    records, before = found.records, found.member
    if found.is_new or updated.subscription != before.subscription:
        records.append(member_record(group, updated))
    work = _UpdatedGroup(group, updated, found.replaced, image)
    has_changed = found.is_new or updated.topics != before.topics
    epoch = group.epoch
    if has_changed or group.needs_refresh:
        epoch = work.epoch(records, now, has_changed=has_changed)
    targets: Mapping[str, Assignment] = group.targets
    assignment_epoch = group.assignment_epoch
    if epoch > assignment_epoch and (assignment_epoch == 0 or now.ms >= group.next_assignment_ms):
        targets, assignment_epoch = work.targets(records, epoch, settings, now), epoch
    target_id = updated.member_id if updated.member_id in targets else found.replaced or updated.member_id
    awaits_target = target_id not in targets and updated.epoch == JOINING_EPOCH
    is_settled = updated.state is MemberState.STABLE and updated.epoch == assignment_epoch and not has_changed
    after = updated
    if not awaits_target and not is_settled:
        former_ids = {updated.member_id, found.replaced}
        after = reconcile(
            updated,
            Target(
                epoch=assignment_epoch,
                partitions=targets.get(target_id, NO_PARTITIONS),
                subscribed=work.subscribed_ids(),
                subscription_changed=has_changed,
            ),
            owned,
            lambda topic_id, number: group.owner(topic_id, number) in (None, *former_ids),
        )
    changes_assignment = not awaits_target and (after != updated or found.is_new or found.replaced is not None)
    if changes_assignment:
        records.append(current_record(group, after))
    work.done()
    return MemberUpdate(
        records=records,
        before=before,
        after=after,
        changes_assignment=changes_assignment,
        replaced=found.replaced,
        awaits_target=awaits_target,
        is_new=found.is_new,
        has_changed=has_changed,
        epoch=epoch,
        assignment_epoch=assignment_epoch,
    )


def assign(
    group: ConsumerGroup, image: ClusterImage, settings: ConsumerGroupSettings, now: Now
) -> list[ConsumerGroupRecord]:
    """Compute targets for the group's epoch, and return their records. Raises `KafkaError` if an assignor fails."""
    records: list[ConsumerGroupRecord] = []
    _UpdatedGroup(group, None, None, image).targets(records, group.epoch, settings, now)
    return records


def regexes_resolved(
    group: ConsumerGroup, found: Mapping[str, tuple[str, ...]], image: ClusterImage, now: Now
) -> list[ConsumerGroupRecord]:
    """Return the records of expressions whose topics are `found`, and the next epoch if a member's topics changed."""
    used = group.subscribed_regexes
    changed = {regex: topics for regex, topics in found.items() if regex in used and group.regexes.get(regex) != topics}
    topics_hash = metadata_hash(existing_topics_of(group.subscriptions, {**group.regexes, **changed}, image), image)
    records = [regex_record(group, regex, topics, now) for regex, topics in changed.items()]
    # An expression may match topics that the group has already by another one.
    differs = any(topics != group.regexes.get(regex, ()) for regex, topics in changed.items())
    if not differs and topics_hash == group.metadata_hash:
        return records
    return [epoch_record(group, topics_hash), *records]


class _UpdatedGroup:
    """A group with at most one changed member: its regular expressions, its epoch, its targets."""

    def __init__(
        self, group: ConsumerGroup, updated: ConsumerGroupMember | None, replaced: str | None, image: ClusterImage
    ) -> None:
        self._group = group
        self._updated = updated
        self._replaced = replaced
        self._image = image
        self._regexes: Mapping[str, tuple[str, ...]] = group.regexes
        self._is_refreshed = False

    def _members(self) -> dict[str, ConsumerGroupMember]:
        members = dict(self._group.members)
        if self._replaced is not None:
            members.pop(self._replaced, None)
        if self._updated is not None:
            members[self._updated.member_id] = self._updated
        return members

    @cached_property
    def _subscriptions(self) -> list[Topics]:
        if self._updated is None:
            return list(self._group.subscriptions)
        counts = self._group.subscriptions.copy()
        for member_id in dict.fromkeys((self._updated.member_id, self._replaced)):
            member = None if member_id is None else self._group.members.get(member_id)
            if member is not None:
                counts[member.topics] -= 1
        counts[self._updated.topics] += 1
        return [topics for topics, count in counts.items() if count > 0]

    @cached_property
    def _topics(self) -> dict[Topics, frozenset[str]]:
        """The existing topics of each subscription, by the group's updated regular expressions."""
        return {each: existing_topics_of([each], self._regexes, self._image) for each in self._subscriptions}

    def epoch(self, records: list[ConsumerGroupRecord], now: Now, *, has_changed: bool) -> int:
        """Return the group's epoch, or the next one if a subscription or topic changed; add its record to `records`."""
        group, used = self._group, {regex for _, regex in self._subscriptions}
        self._regexes = {regex: topics for regex, topics in group.regexes.items() if regex in used}
        records += [regex_record(group, regex, None, now) for regex in sorted(group.regexes.keys() - used)]
        self._is_refreshed = True
        topics_hash = self._metadata_hash(frozenset[str]().union(*self._topics.values()))
        if not has_changed and topics_hash == group.metadata_hash:
            return group.epoch
        records.insert(0, epoch_record(group, topics_hash))
        return group.epoch + 1

    def _metadata_hash(self, topics: frozenset[str]) -> int:
        """Return the metadata hash of topics, cached for the last image and topics."""
        known = self._group.hashed
        if known is not None and known[0] is self._image and known[1] == topics:
            return known[2]
        topics_hash = metadata_hash(topics, self._image)
        self._group.hashed = self._image, topics, topics_hash
        return topics_hash

    def done(self) -> None:
        """Mark the group as refreshed with the current topics; call it only if no assignor failed."""
        if self._is_refreshed:
            self._group.needs_refresh = False

    def subscribed_ids(self) -> frozenset[uuid.UUID]:
        """Return the ids of the existing topics that the changed member subscribes to."""
        assert self._updated is not None
        names = existing_topics_of([self._updated.topics], self._regexes, self._image)
        return frozenset(self._image.topics[name].topic_id for name in names)

    def targets(
        self, records: list[ConsumerGroupRecord], epoch: int, settings: ConsumerGroupSettings, now: Now
    ) -> dict[str, Assignment]:
        """Compute and return the targets for an epoch; add the changed ones and the target epoch to `records`."""
        group, members = self._group, self._members()
        previous = dict(group.targets)
        if self._replaced is not None and self._updated is not None:
            previous[self._updated.member_id] = previous.pop(self._replaced, NO_PARTITIONS)
        found = compute_targets(
            f"epoch {epoch} of group {group.group_id}",
            members,
            {member_id: self._topics[member.topics] for member_id, member in members.items()},
            previous,
            self._image,
            settings.assignors,
        )
        records += [
            target_record(group, member_id, target)
            for member_id, target in found.items()
            if previous.get(member_id) != target
        ]
        records.append(target_epoch_record(group, epoch))
        entries = len(found) + sum(len(numbers) for target in found.values() for numbers in target.values())
        group.next_assignment_ms = now.ms + min(settings.assignment_interval_ms, entries // _ENTRIES_PER_MS)
        return found


def with_subscription(member: ConsumerGroupMember, **changes: object) -> ConsumerGroupMember:
    """Return the member with these fields of its subscription changed; the same object if nothing changes."""
    now = member.subscription
    if all(getattr(now, name) == value for name, value in changes.items()):
        return member
    return replace(member, subscription=dataclasses.replace(now, **changes))  # type: ignore[arg-type]
