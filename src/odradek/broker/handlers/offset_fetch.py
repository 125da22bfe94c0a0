"""OffsetFetch: the committed offsets of groups; -1 where there is none.

Versions: 2 all topics (null) and an error of the group, 5 leader epochs (KIP-320), 7 `require_stable`, which waits for
pending commits and returns UNSTABLE_OFFSET_COMMIT for offsets that an open transaction may change (KIP-447), 8 many
groups (KIP-709), 9 members of consumer groups (KIP-848), 10 topic ids in place of names.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.groups.machine.messages import FetchedOffsets, FetchOffsetsRequest
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import HEAVY, Steps, in_turns
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest as Message

_GROUP_ERROR_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NO_OFFSET: Final = -1


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return the offsets of each group; a repeated group has one result."""
    require_stable = optional(message, "require_stable", False)
    has_many = context.api_version >= _MANY_GROUPS_FROM
    wanted: tuple[Any, ...] = tuple(dict.fromkeys(message.groups)) if has_many else (message,)
    requests = await in_turns(_requests(broker.image, context, wanted, require_stable=require_stable))
    if any(group.topics is None for group in wanted):
        await broker.dispatcher.begin_long(context)
    replies = await broker.groups.submit_all(requests)
    return _answer(broker.image, context, wanted, replies)


def _requests(
    image: ClusterImage, context: RequestContext, groups: tuple[Any, ...], *, require_stable: bool
) -> Steps[list[tuple[str, FetchOffsetsRequest | KafkaError]]]:
    requests: list[tuple[str, FetchOffsetsRequest | KafkaError]] = []
    for group in groups:
        yield HEAVY
        try:
            context.check(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        except KafkaError as error:
            requests.append((group.group_id, error))
            continue
        request = FetchOffsetsRequest(
            partitions=(yield from _partitions(image, context, group)),
            require_stable=require_stable,
            member_id=optional(group, "member_id", None),
            member_epoch=optional(group, "member_epoch", -1),
        )
        requests.append((group.group_id, request))
    return requests


def _answer(
    image: ClusterImage, context: RequestContext, groups: tuple[Any, ...], replies: list[Any]
) -> Steps[dict[str, object]]:
    answers = []
    for group, reply in zip(groups, replies, strict=True):
        answers.append((yield from _fetched(image, context, group, reply)))
        yield HEAVY
    return {"groups": answers} if context.api_version >= _MANY_GROUPS_FROM else answers[0]


def _fetched(
    image: ClusterImage,
    context: RequestContext,
    wanted: Any,
    fetched: FetchedOffsets | KafkaError,
) -> Steps[dict[str, object]]:
    error = fetched.code if isinstance(fetched, KafkaError) else fetched.error
    if isinstance(fetched, KafkaError) or error is not ErrorCode.none:
        topics = _failed(wanted, error) if context.api_version < _GROUP_ERROR_FROM else []
        return {"group_id": wanted.group_id, "error_code": error, "topics": topics}
    by_id = context.api_version >= _TOPIC_IDS_FROM
    fetch = _Fetch(image, context, fetched, by_id=by_id)
    if wanted.topics is None:
        return {"group_id": wanted.group_id, "topics": (yield from fetch.all())}
    topics = []
    for topic in wanted.topics:
        topics.append(fetch.topic(topic))
        yield 2 + len(topic.partition_indexes)
    return {"group_id": wanted.group_id, "topics": topics}


def _partitions(image: ClusterImage, context: RequestContext, wanted: Any) -> Steps[tuple[TopicPartition, ...] | None]:
    if wanted.topics is None:
        return None
    found = []
    for topic in wanted.topics:
        known = image.topic_by_id(topic.topic_id) if context.api_version >= _TOPIC_IDS_FROM else topic
        if known is not None:
            found += [TopicPartition(known.name, number) for number in topic.partition_indexes]
        yield 1 + len(topic.partition_indexes)
    return tuple(found)


class _Fetch:
    """One group's offsets in the form of a response."""

    def __init__(self, image: ClusterImage, context: RequestContext, fetched: FetchedOffsets, *, by_id: bool) -> None:
        self._context = context
        self._image = image
        self._fetched = fetched
        self._by_id = by_id

    def all(self) -> Steps[list[dict[str, object]]]:
        """Return all offsets that the principal may see; with topic ids, only those of existing topics."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in (*self._fetched.values, *self._fetched.unstable):
            by_topic.setdefault(topic, []).append(number)
        answers: list[dict[str, object]] = []
        describe = AclOperation.DESCRIBE
        denied = yield from self._context.denied(describe, ResourceType.TOPIC, by_topic, quietly=True)
        for name, numbers in by_topic.items():
            yield len(numbers)
            image = self._image.topics.get(name)
            if name in denied:
                continue
            if self._by_id and image is None:
                continue
            answers.append(
                {
                    "name": name,
                    "topic_id": None if image is None else image.topic_id,
                    "partitions": self._partitions(name, numbers),
                }
            )
        return answers

    def topic(self, wanted: Any) -> dict[str, object]:
        if not self._by_id:
            return {"name": wanted.name, "partitions": self._partitions(wanted.name, wanted.partition_indexes)}
        image = self._image.topic_by_id(wanted.topic_id)
        if image is None:
            partitions = [_nothing(number, ErrorCode.unknown_topic_id) for number in wanted.partition_indexes]
        else:
            partitions = self._partitions(image.name, wanted.partition_indexes)
        return {"topic_id": wanted.topic_id, "partitions": partitions}

    def _partitions(self, topic: str, numbers: Iterable[int]) -> list[dict[str, object]]:
        if not self._context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            return [_nothing(number, ErrorCode.topic_authorization_failed) for number in numbers]
        return [self._partition(TopicPartition(topic, number)) for number in numbers]

    def _partition(self, partition: TopicPartition) -> dict[str, object]:
        if partition in self._fetched.unstable:
            return _nothing(partition.partition, ErrorCode.unstable_offset_commit)
        value = self._fetched.values.get(partition)
        if value is None:
            return _nothing(partition.partition, ErrorCode.none)
        return {
            "partition_index": partition.partition,
            "committed_offset": value.offset,
            "committed_leader_epoch": value.leader_epoch,
            "metadata": value.metadata,
        }


def _nothing(number: int, error: ErrorCode) -> dict[str, object]:
    return {"partition_index": number, "committed_offset": _NO_OFFSET, "metadata": "", "error_code": error}


def _failed(wanted: Any, error: ErrorCode) -> list[dict[str, object]]:
    """Return the group's error at each partition, as versions 0 and 1 have no other field for it."""
    return [
        {"name": topic.name, "partitions": [_nothing(number, error) for number in topic.partition_indexes]}
        for topic in wanted.topics
    ]
