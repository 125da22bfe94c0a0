"""CreatePartitions: add partitions to topics (KIP-195). Only the controller serves it.

Each topic succeeds or fails alone. When the response is sent, the new partitions have leaders and accept records.
Version 3: quotas (KIP-599).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from odradek.broker.serving.admission import authorization_error
from odradek.broker.serving.context import RequestContext
from odradek.controller import NewPartitions
from odradek.model import ErrorCode, KafkaError
from odradek.security import AclOperation, ResourceType


class _Broker(Protocol):
    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]: ...


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one result per topic: INVALID_REQUEST if named twice, INVALID_PARTITIONS if the count is not larger."""
    named = Counter(topic.name for topic in message.topics)
    denied = context.denied(AclOperation.ALTER, ResourceType.TOPIC, named)
    wanted = [
        NewPartitions(
            topic=topic.name,
            count=topic.count,
            assignment=None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments],
        )
        for topic in message.topics
        if named[topic.name] == 1 and topic.name not in denied
    ]
    twice = KafkaError(ErrorCode.invalid_request, "a topic may come only once in a request")
    results: dict[str, KafkaError | None] = dict.fromkeys(named, twice)
    results |= dict.fromkeys(denied, authorization_error(ResourceType.TOPIC))
    try:
        created = await broker.create_partitions(wanted, validate_only=message.validate_only)
    except KafkaError as error:
        created = [error] * len(wanted)
    results |= {each.topic: error for each, error in zip(wanted, created, strict=True)}
    return {
        "results": [
            {
                "name": name,
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else str(error),
            }
            for name, error in results.items()
        ]
    }
