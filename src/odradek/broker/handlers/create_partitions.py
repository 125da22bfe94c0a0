"""CreatePartitions: add partitions to topics (KIP-195). Only the controller serves it.

Each topic succeeds or fails alone. When the response is sent, the new partitions have leaders and accept records.
Version 3: quotas (KIP-599).
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, in_turns, light
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest as Message

_STRICT_FROM: Final = 3


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per topic: INVALID_REQUEST if named twice, INVALID_PARTITIONS if the count is not larger."""
    named = Counter(topic.name for topic in message.topics)
    denied = await in_turns(context.denied(AclOperation.ALTER, ResourceType.TOPIC, named))
    wanted = []
    throttled: dict[str, KafkaError | None] = {}
    async for topic in cooperatively(message.topics, lambda each: 4 + len(each.assignments or ())):
        if named[topic.name] == 1 and topic.name not in denied:
            assignment = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
            new = NewPartitions(topic=topic.name, count=topic.count, assignment=assignment)
            try:
                if not message.validate_only:
                    count = _added(broker.image, new)
                    broker.quotas.take_mutations(context, count, strict_from=_STRICT_FROM)
                wanted.append(new)
            except KafkaError as error:
                throttled[topic.name] = error.with_traceback(None)
    twice = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
    results: dict[str, KafkaError | None] = dict.fromkeys(named, twice)
    results |= dict.fromkeys(denied, authorization_error(ResourceType.TOPIC))
    try:
        created = await broker.create_partitions(wanted, validate_only=message.validate_only)
    except KafkaError as error:
        created = [error] * len(wanted)
    failed = [each for each, error in zip(wanted, created, strict=True) if error and not message.validate_only]
    if failed:
        count = sum(_added(broker.image, each) for each in failed)
        broker.quotas.take_mutations(context, -count, strict_from=_STRICT_FROM)
    results |= throttled | {each.topic: error for each, error in zip(wanted, created, strict=True)}
    return {
        "results": [
            {
                "name": name,
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message,
            }
            async for name, error in cooperatively(results.items(), light)
        ]
    }


def _added(image: ClusterImage, new: NewPartitions) -> int:
    topic = image.topics.get(new.topic)
    return 0 if topic is None else max(new.count - len(topic.partitions), 0)
