"""ConsumerGroupHeartbeat: validates the request, updates the member, builds the response (KIP-848)."""

from typing import Any, Final

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.group_update import (
    MemberUpdate,
    find_member,
    update_member,
    with_subscription,
)
from odradek.broker.groups.machine.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatReply, ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.consumer.subscriptions import compile_regex
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError

MOST_NAMES: Final = 250_000
"""Limit of the names of topics in a group's different subscriptions: an assignment over so many takes 0.15 s."""

_NO_TOPICS: Final = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."


def validate(request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings) -> None:
    """Check a request's fields, as Kafka does.

    Raises `KafkaError` INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION.
    """
    if not request.member_id:
        raise _invalid("MemberId can't be empty.")
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch < LEAVING_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.member_epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(_NO_TOPICS)
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.assignors)}.",
        )
    if request.subscribed_topic_regex:
        compile_regex(request.subscribed_topic_regex)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, text)


def is_settled(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether neither request nor group has changes, so that the caller only extends the session."""
    member = group.members.get(request.member_id)
    if member is None or not request.is_keep_alive or group.needs_refresh:
        return False
    is_same_client = (
        member.subscription.client_id == request.client_id and member.subscription.client_host == request.client_host
    )
    return (
        request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and request.member_epoch > JOINING_EPOCH
        and member.state is MemberState.STABLE
        and is_same_client
        and not member.is_classic
    )


def unchanged(request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings) -> ConsumerGroupHeartbeatReply:
    """Return the response to a member whose epoch and assignment do not change."""
    return ConsumerGroupHeartbeatReply(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    image: ClusterImage,
    settings: ConsumerGroupSettings,
    now: Now,
) -> MemberUpdate:
    """Return the effects of a member that joins or stays. Raises `KafkaError` if it is refused or an assignor fails."""
    found = find_member(group, request, settings.max_size)
    updated = _updated(found.member, request)
    _check_names(group, updated)
    return update_member(
        group,
        found,
        updated,
        request.owned,
        image,
        settings,
        now,
    )


def reply_to(
    request: ConsumerGroupHeartbeatRequest, update: MemberUpdate, settings: ConsumerGroupSettings
) -> ConsumerGroupHeartbeatReply:
    """Return the response, with the assignment only if the assignment changed or the request is full."""
    after = update.after
    gets_assignment = request.is_full or after.assigned != update.before.assigned
    return ConsumerGroupHeartbeatReply(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=after.assigned if gets_assignment else None,
    )


def _check_names(group: ConsumerGroup, updated: ConsumerGroupMember) -> None:
    """Raise `KafkaError` for a subscription of its own in a group with very many: each assignment goes over all."""
    if updated.topics in group.subscriptions:
        return
    names = len(updated.topics[0]) + sum(len(names) for names, _ in group.subscriptions)
    if names > MOST_NAMES:
        text = f"the members of group {group.group_id} subscribe to {MOST_NAMES} names of topics, each in its own way"
        raise KafkaError(ErrorCode.group_max_size_reached, text)


def _updated(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """Return the member, no longer classic, with the client id and host and all given fields of the request."""
    changes: dict[str, Any] = {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "classic_member_metadata": None,
    }
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = tuple(sorted(set(request.subscribed_topic_names)))
    for name in ("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor"):
        value = getattr(request, name)
        if value is not None:
            changes[name] = value
    return with_subscription(member, **changes)
