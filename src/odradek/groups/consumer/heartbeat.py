"""ConsumerGroupHeartbeat: how members join, stay, get their partitions, and leave (KIP-848).

One heartbeat may write these records, in this order: the group's epoch, the member, the topics of regular expressions,
targets and their epoch, and the member's current assignment.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from odradek.coordination import Now
from odradek.groups.consumer.consumer_group import ConsumerGroup
from odradek.groups.consumer.group_changes import (
    current_record,
    epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstones,
)
from odradek.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
)
from odradek.groups.consumer.messages import ConsumerGroupHeartbeatReply, ConsumerGroupHeartbeatRequest
from odradek.groups.consumer.reconciliation import Target, reconcile
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.consumer.subscriptions import (
    compile_regex,
    metadata_hash,
    resolve_regex,
    topics_of,
    topics_of_all,
)
from odradek.groups.consumer.target_assignment import compute_targets
from odradek.groups.records import ConsumerGroupRecord
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass
from odradek.protocol.group_records import ConsumerGroupMemberMetadataValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The consequences of a heartbeat."""

    records: list[ConsumerGroupRecord]
    reply: ConsumerGroupHeartbeatReply
    after: ConsumerGroupMember
    """The member as the records make it."""
    changes_assignment: bool
    replaced: str | None
    """The id under which a static member was known until now."""


def validate(request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings) -> None:
    """Check a request by itself, as Kafka does. Raises `KafkaError`: INVALID_REQUEST and others."""
    if not request.member_id:
        raise _invalid("MemberId is empty; a member makes its own id, a UUID")
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise _invalid(f"{name} is empty; leave it out (null) instead")
    if request.member_epoch < LEAVING_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is less than -2")
    if request.member_epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("MemberEpoch -2 is for static members; InstanceId is missing")
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs is missing in the first request")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when a member joins")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("SubscribedTopicNames and SubscribedTopicRegex are both missing in the first request")
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not known; this broker has {', '.join(settings.assignors)}",
        )
    if request.subscribed_topic_regex:
        compile_regex(request.subscribed_topic_regex)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    image: ClusterImage,
    settings: ConsumerGroupSettings,
    now: Now,
) -> Decision:
    """Decide on the heartbeat of a member that joins or stays. Raises `KafkaError`, and then nothing changes."""
    found = _find_member(group, request, settings)
    records = found.records
    before, updated = found.member, _updated(found.member, request)
    if found.is_new or updated.subscription != before.subscription:
        records.append(member_record(group, updated))
    refresh = _Refresh(group, request, updated, found.replaced, image)
    has_changed = found.is_new or updated.topics != before.topics
    epoch = group.epoch
    if has_changed or group.needs_refresh:
        epoch = refresh.epoch(records, now, has_changed=has_changed)
    if epoch > group.assignment_epoch:
        targets = refresh.targets(records, epoch, settings)
        target = targets[updated.member_id]
    else:
        epoch = group.assignment_epoch
        target = group.target(found.replaced or updated.member_id)
    former_ids = {updated.member_id, found.replaced}
    after = reconcile(
        updated,
        Target(
            epoch=epoch,
            partitions=target,
            subscribed=refresh.subscribed_ids(),
            subscription_changed=has_changed,
        ),
        request.owned,
        lambda topic_id, number: group.owner(topic_id, number) in (None, *former_ids),
    )
    changes_assignment = after != updated or found.is_new or found.replaced is not None
    if changes_assignment:
        records.append(current_record(group, after))
    group.needs_refresh = group.needs_resolution = False
    gets_assignment = request.is_full or after.assigned != before.assigned
    reply = ConsumerGroupHeartbeatReply(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=after.assigned if gets_assignment else None,
    )
    return Decision(
        records=records, reply=reply, after=after, changes_assignment=changes_assignment, replaced=found.replaced
    )


# ---- the member -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    member: ConsumerGroupMember
    records: list[ConsumerGroupRecord]
    is_new: bool = False
    replaced: str | None = None
    """The id under which a static member was known until now."""


def _find_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings
) -> _Found:
    joins = request.member_epoch == JOINING_EPOCH
    known = group.members.get(request.member_id)
    if request.instance_id is not None:
        holder = group.static_member(request.instance_id)
        if holder is not None and holder.member_id != request.member_id:
            if not joins:
                raise fenced_instance(holder, request.member_id)
            return _replace_static(group, holder, request.member_id)
        known = holder
    if known is None:
        if not joins:
            raise unknown_member(group, request.member_id)
        if len(group.members) >= settings.max_size:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"group {group.group_id} has group.consumer.max.size={settings.max_size} members",
            )
        return _Found(member=_new_member(request), records=[], is_new=True)
    if known.is_away and joins:
        return _Found(member=replace(known, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH), records=[])
    check_epoch(known, request)
    return _Found(member=known, records=[])


def _replace_static(group: ConsumerGroup, holder: ConsumerGroupMember, member_id: str) -> _Found:
    """Let a static member return under another id, with its partitions."""
    if not holder.is_away:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"instance id {holder.subscription.instance_id} belongs to member {holder.member_id} of group "
            f"{group.group_id}, which has not left",
        )
    member = replace(holder, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    records = [*tombstones(group, holder.member_id), member_record(group, member)]
    records.append(target_record(group, member_id, group.target(holder.member_id)))
    # Another member may have had the new id until now: then the group loses that one.
    return _Found(member=member, records=records, replaced=holder.member_id, is_new=member_id in group.members)


def check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise `KafkaError` FENCED_MEMBER_EPOCH unless the epoch is the member's, or the one before it after a lost reply.

    A member that joins again has given up everything, so epoch 0 is always right. Kafka refuses it until the session
    expires.
    """
    received = request.member_epoch
    if received in (member.epoch, JOINING_EPOCH):
        return
    if received == member.previous_epoch and request.owned is not None and _is_subset(request.owned, member.assigned):
        return
    word = "greater" if received > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"member {member.member_id} has epoch {received}, {word} than the coordinator's {member.epoch}; "
        "it must give up its partitions and rejoin",
    )


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    """Return the error for a member that the group does not have."""
    return KafkaError(ErrorCode.unknown_member_id, f"member {member_id} is not a member of group {group.group_id}")


def fenced_instance(holder: ConsumerGroupMember, member_id: str) -> KafkaError:
    """Return the error for a static member whose instance id another member has now."""
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"member {member_id} was replaced by {holder.member_id} with instance id {holder.subscription.instance_id}",
    )


def _new_member(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    subscription = ConsumerGroupMemberMetadataValue(
        instance_id=request.instance_id,
        rack_id=None,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=(),
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=None,
    )
    return ConsumerGroupMember(member_id=request.member_id, subscription=subscription)


def _updated(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """Return the member with what the request says; the client's id and host are always those of the request."""
    changes: dict[str, Any] = {"client_id": request.client_id, "client_host": request.client_host}
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = tuple(sorted(set(request.subscribed_topic_names)))
    for name in ("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor"):
        value = getattr(request, name)
        if value is not None:
            changes[name] = value
    now = member.subscription
    if all(getattr(now, name) == value for name, value in changes.items()):
        return member
    return replace(member, subscription=replace(now, **changes))


# ---- the group ------------------------------------------------------------------------------------------------------


class _Refresh:
    """The group with one member changed: its regular expressions, its epoch, its targets."""

    def __init__(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        updated: ConsumerGroupMember,
        replaced: str | None,
        image: ClusterImage,
    ) -> None:
        self._group = group
        self._request = request
        self._updated = updated
        self._replaced = replaced
        self._image = image
        self._regexes: Mapping[str, tuple[str, ...]] = group.regexes

    def _members(self) -> Iterator[ConsumerGroupMember]:
        for member_id, member in self._group.members.items():
            if member_id not in (self._updated.member_id, self._replaced):
                yield member
        yield self._updated

    def epoch(self, records: list[ConsumerGroupRecord], now: Now, *, has_changed: bool) -> int:
        """Return the group's epoch, one later if a subscription or a topic changed."""
        group = self._group
        self._resolve_regexes(records, now)
        topics_hash = metadata_hash(topics_of_all(self._members(), self._regexes), self._image)
        if not has_changed and topics_hash == group.metadata_hash:
            return group.epoch
        records.insert(0, epoch_record(group, topics_hash))
        return group.epoch + 1

    def _resolve_regexes(self, records: list[ConsumerGroupRecord], now: Now) -> None:
        known = self._group.regexes
        used = {regex for member in self._members() if (regex := member.topics[1])}
        fresh = {} if self._group.needs_resolution else known
        self._regexes = {
            regex: fresh[regex] if regex in fresh else resolve_regex(regex, self._image, self._request.denied_topics)
            for regex in sorted(used)
        }
        for regex, topics in self._regexes.items():
            if known.get(regex) != topics:
                records.append(regex_record(self._group, regex, topics, now))
        records += [regex_record(self._group, regex, None, now) for regex in sorted(known.keys() - used)]

    def subscribed_ids(self) -> frozenset[uuid.UUID]:
        """Return the ids of the existing topics that the changed member subscribes to."""
        topics = self._image.topics
        return frozenset(topics[name].topic_id for name in topics_of(self._updated, self._regexes) if name in topics)

    def targets(
        self, records: list[ConsumerGroupRecord], epoch: int, settings: ConsumerGroupSettings
    ) -> dict[str, Assignment]:
        """Compute the targets for an epoch; record those that changed."""
        group = self._group
        members = {member.member_id: member for member in self._members()}
        previous = dict(group.targets)
        if self._replaced is not None:
            previous[self._updated.member_id] = previous.pop(self._replaced, NO_PARTITIONS)
        topics = {member.topics: topics_of(member, self._regexes) for member in members.values()}
        found = compute_targets(
            f"epoch {epoch} of group {group.group_id}",
            members,
            {member_id: topics[member.topics] for member_id, member in members.items()},
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
        return found


# ---- leaving --------------------------------------------------------------------------------------------------------


def leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> tuple[list[ConsumerGroupRecord], ConsumerGroupMember]:
    """Decide on a member that leaves: for good, or for a while if it is static. Return the records and the member."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        return remove(group, member), member
    member = group.static_member(request.instance_id)
    if member is None:
        raise unknown_member(group, request.member_id)
    if member.member_id != request.member_id:
        raise fenced_instance(member, request.member_id)
    if request.member_epoch == LEAVING_STATIC_EPOCH:
        return [current_record(group, replace(member, epoch=LEAVING_STATIC_EPOCH, revoking=NO_PARTITIONS))], member
    return remove(group, member), member


def remove(group: ConsumerGroup, member: ConsumerGroupMember) -> list[ConsumerGroupRecord]:
    """Return the records that remove a member; the next heartbeat of another computes new targets."""
    return [*tombstones(group, member.member_id), epoch_record(group, group.metadata_hash)]
