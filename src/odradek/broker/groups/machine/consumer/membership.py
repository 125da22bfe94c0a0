"""Finds a request's member in a consumer group, checks its epoch, replaces and removes it (KIP-848, KIP-345)."""

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.coordinator_records import (
    current_record,
    member_record,
    target_record,
    tombstones,
)
from odradek.broker.groups.machine.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
)
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.records import ConsumerGroupRecord
from odradek.model import ErrorCode, KafkaError
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
            f"instance id {holder.subscription.instance_id} belongs to member {holder.member_id} of group "
            f"{group.group_id}, which has not left",
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
        f"member {member.member_id} has epoch {received}, {word} than the coordinator's {member.epoch}; "
        "it must give up its partitions and rejoin",
    )


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items())


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.unknown_member_id, f"member {member_id} is not a member of group {group.group_id}")


def fenced_instance(holder: ConsumerGroupMember, member_id: str) -> KafkaError:
    """Return the error for the static member `member_id`, whose instance id `holder` has now."""
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"member {member_id} was replaced by {holder.member_id} with instance id {holder.subscription.instance_id}",
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
