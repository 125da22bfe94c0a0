"""ConsumerGroupDescribe: epochs, members, assignments and target assignments of consumer groups (KIP-848).

Version 1: the type of each member, classic or consumer.
"""

from typing import TYPE_CHECKING, Final

from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescription
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, in_turns
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.security import NOT_ASKED_FOR, AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest as Message

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one description per group; GROUP_ID_NOT_FOUND also for a classic group."""
    names = tuple(dict.fromkeys(message.group_ids))
    replies = await broker.groups.submit_all((name, _request(context, name)) for name in names)
    await broker.dispatcher.begin_long(context)
    groups = []
    async for name, reply in cooperatively(zip(names, replies, strict=True)):
        operations = NOT_ASKED_FOR
        if isinstance(reply, KafkaError):
            groups.append(_without_group(name, reply.code, str(reply)))
            continue
        if message.include_authorized_operations:
            operations = context.authorized_operations(ResourceType.GROUP, name)
        if await in_turns(context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, _topics(broker.image, reply))):
            text = "The group has topics that the client may not describe."
            groups.append(_without_group(name, ErrorCode.topic_authorization_failed, text))
        else:
            groups.append(_described(broker.image, reply) | {"authorized_operations": operations})
    return {"groups": groups}


def _request(context: RequestContext, group_id: str) -> ConsumerGroupDescribeRequest | KafkaError:
    try:
        context.check(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    except KafkaError as error:
        return error
    return ConsumerGroupDescribeRequest()


def _topics(image: ClusterImage, group: ConsumerGroupDescription) -> set[str]:
    """Return the names of all topics that the description of `group` contains."""
    names = {name for member, _ in group.members for name in member.subscription.subscribed_topic_names}
    for member, target in group.members:
        for assignment in (member.assigned, target):
            names.update(str(each["topic_name"]) for each in _partitions(image, assignment))
    return names


def _without_group(group_id: str, error: ErrorCode, message: str) -> dict[str, object]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": NOT_ASKED_FOR,
    }


def _described(image: ClusterImage, group: ConsumerGroupDescription) -> dict[str, object]:
    return {
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(image, member, target) for member, target in group.members],
    }


def _member(image: ClusterImage, member: ConsumerGroupMember, target: Assignment) -> dict[str, object]:
    subscription = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": member.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": subscription.subscribed_topic_names,
        "subscribed_topic_regex": subscription.subscribed_topic_regex,
        "assignment": {"topic_partitions": _partitions(image, member.assigned)},
        "target_assignment": {"topic_partitions": _partitions(image, target)},
        "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    }


def _partitions(image: ClusterImage, assignment: Assignment) -> list[dict[str, object]]:
    """Return the partitions of `assignment` whose topics still exist."""
    return [
        {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)}
        for topic_id, numbers in assignment.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
