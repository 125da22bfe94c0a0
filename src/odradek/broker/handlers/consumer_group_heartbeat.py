"""ConsumerGroupHeartbeat: members of the consumer protocol join, report, get their partitions and leave (KIP-848).

Version 1: regular expressions, and members that make their own ids.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Protocol

from odradek.broker.groups.group_coordinator import GroupCoordinator
from odradek.broker.parts import HasConfig, HasGroups, HasRuntime
from odradek.broker.serving.context import RequestContext
from odradek.groups.consumer.member import Assignment, subscription_size
from odradek.groups.consumer.messages import ConsumerGroupHeartbeatReply, ConsumerGroupHeartbeatRequest
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import milliseconds, optional
from odradek.runtime import Entropy, uuid4
from odradek.security import AclOperation, ResourceType


class _Broker(HasConfig, HasGroups, HasRuntime, Protocol):
    """The parts of a broker that this handler uses."""


_OWN_IDS_FROM: Final = 1


def handle(
    broker: _Broker, context: RequestContext, message: Any
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    """Return the member's epoch, and its assignment if it changed or the member asked for all.

    The response is a coroutine only if it waits for a commit, as for Heartbeat.
    """
    if "consumer" not in broker.config.group_coordinator_rebalance_protocols:
        text = "group.coordinator.rebalance.protocols of this broker does not have consumer"
        return _failed(KafkaError(ErrorCode.unsupported_version, text))
    names = message.subscribed_topic_names
    denied = names and context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    if denied:
        return _failed(KafkaError(ErrorCode.topic_authorization_failed, f"no permission to describe {min(denied)}"))
    if not message.group_id:
        return _failed(KafkaError(ErrorCode.invalid_request, "GroupId is empty"))
    request = _request(broker.runtime.entropy, context, message)
    if not _has_room(broker.groups, message.group_id, request):
        text = "the groups of this broker take all of queued.max.request.bytes"
        return _failed(KafkaError(ErrorCode.group_max_size_reached, text))
    reply = broker.groups.submit(message.group_id, request)
    return _message(reply) if reply.done() else _when_committed(reply)


def _has_room(groups: GroupCoordinator, group_id: str, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether there is memory for a subscription that is new or larger than before."""
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return True
    size = subscription_size(request.subscribed_topic_names or (), request.subscribed_topic_regex)
    known = groups.consumer_member(group_id, request.member_id)
    more = size if known is None else size - known.size_bytes
    return more <= 0 or groups.has_room_for(more)


def _request(entropy: Entropy, context: RequestContext, message: Any) -> ConsumerGroupHeartbeatRequest:
    member_id = message.member_id
    if not member_id and message.member_epoch == 0 and context.api_version < _OWN_IDS_FROM:
        member_id = str(uuid4(entropy))
    owned = message.topic_partitions
    return ConsumerGroupHeartbeatRequest(
        member_id=member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=milliseconds(message.rebalance_timeout),
        client_id=context.client_id or "",
        client_host=context.client_host,
        subscribed_topic_names=message.subscribed_topic_names,
        subscribed_topic_regex=optional(message, "subscribed_topic_regex", None),
        server_assignor=message.server_assignor,
        owned=None if owned is None else _owned(owned),
        denied_topics=partial(context.denied, AclOperation.DESCRIBE, ResourceType.TOPIC),
    )


def _owned(topics: Any) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.topic_id and each.partitions}


async def _when_committed(reply: "asyncio.Future[ConsumerGroupHeartbeatReply]") -> dict[str, Any]:
    await asyncio.wait([reply])
    return _message(reply)


def _message(reply: "asyncio.Future[ConsumerGroupHeartbeatReply]") -> dict[str, Any]:
    try:
        found = reply.result()
    except KafkaError as error:
        return _failed(error)
    return {
        "member_id": found.member_id,
        "member_epoch": found.member_epoch,
        "heartbeat_interval": found.heartbeat_interval_ms,
        "assignment": None if found.assignment is None else {"topic_partitions": _partitions(found.assignment)},
    }


def _partitions(assignment: Assignment) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in assignment.items()]


def _failed(error: KafkaError) -> dict[str, Any]:
    return {
        "error_code": error.code,
        "error_message": str(error),
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
