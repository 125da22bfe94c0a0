"""DeleteTopics: delete topics by name, from version 6 by topic id too. Only the controller serves it.

When the response is sent, the topics are gone from this broker's metadata. Versions: 3 TOPIC_DELETION_DISABLED, 5 error
messages (KIP-599), 6 topic ids (KIP-516).
"""

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively, light
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest as Message

_TOPIC_IDS_FROM = 6
_STRICT_FROM = 5


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per entry; a repeated entry, or one with name and id or neither, gets INVALID_REQUEST."""
    if context.api_version < _TOPIC_IDS_FROM:
        names: tuple[str, ...] = optional(message, "topic_names", ())
        requested: list[tuple[str | None, UUID | None]] = [(name, None) for name in names]
    else:
        requested = [(topic.name, topic.topic_id) for topic in message.topics]
    named = Counter(requested)
    errors: dict[int, KafkaError] = {}
    wanted: dict[int, str | UUID] = {}
    taken: dict[int, int] = {}
    async for place, (name, topic_id) in cooperatively(enumerate(requested), lambda _: 4):
        if named[name, topic_id] > 1 or (name is None) == (topic_id is None):
            errors[place] = KafkaError(ErrorCode.invalid_request, _refused(name, topic_id))
        elif (error := _refusal(broker.image, context, name, topic_id)) is not None:
            errors[place] = error.with_traceback(None)
        else:
            count = _partitions(broker.image, name, topic_id)
            try:
                broker.quotas.take_mutations(context, count, strict_from=_STRICT_FROM)
            except KafkaError as throttled:
                errors[place] = throttled
                continue
            taken[place] = count
            wanted[place] = name if name is not None else topic_id  # type: ignore[assignment]
    results: dict[int, tuple[str | None, UUID | None, KafkaError | None]] = {}
    try:
        deletions = await broker.controller.delete_topics(list(wanted.values()))
        for place, deletion in zip(wanted, deletions, strict=True):
            results[place] = deletion.name, deletion.topic_id, deletion.error
    except KafkaError as error:
        results = {place: (*requested[place], error) for place in wanted}
    if failed := [place for place, (_, _, error) in results.items() if error is not None]:
        count = sum(taken[place] for place in failed)
        broker.quotas.take_mutations(context, -count, strict_from=_STRICT_FROM)
    results |= {place: (*requested[place], error) for place, error in errors.items()}
    places = range(len(requested))
    return {"responses": [_response(*results[place]) async for place in cooperatively(places, light)]}


def _refused(name: str | None, topic_id: UUID | None) -> str:
    """Return Kafka's text for a topic that a request names twice, in two ways, or not at all."""
    if name is None and topic_id is None:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id is not None:
        return "You may not specify both topic name and topic id."
    return "Duplicate topic id." if name is None else "Duplicate topic name."


def _refusal(
    image: ClusterImage, context: RequestContext, name: str | None, topic_id: UUID | None
) -> KafkaError | None:
    """Return the error of a topic that the principal may not delete, else None.

    A topic id that this broker does not know is refused, unless there is no authorizer: then the controller decides.
    """
    if name is None and topic_id is not None:
        name = image.topic_names.get(topic_id)
    if name is None:
        return None if context.visibility is None else KafkaError(ErrorCode.unknown_topic_id)
    is_allowed = context.allows(AclOperation.DELETE, ResourceType.TOPIC, name)
    return None if is_allowed else authorization_error(ResourceType.TOPIC)


def _partitions(image: ClusterImage, name: str | None, topic_id: UUID | None) -> int:
    topic = image.topic_by_id(topic_id) if name is None and topic_id is not None else image.topics.get(name or "")
    return 0 if topic is None else len(topic.partitions)


def _response(name: str | None, topic_id: UUID | None, error: KafkaError | None) -> dict[str, object]:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": ErrorCode.none if error is None else error.code,
        "error_message": None if error is None else error.message,
    }
