"""Metadata: brokers, topics and leaders. Requested topics that do not exist are created if that is allowed.

The encoded response is cached until the cluster's image changes (`response_cache`). Versions: 0 an empty list means all
topics, from 1 on a null list; 4 the client may forbid creation; 7 leader epochs; 8 authorized operations (KIP-430); 10
topic ids in responses, 12 in requests (KIP-516); 13 an error of the request (KIP-1102).
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext, cluster_operations
from odradek.broker.serving.response_cache import CachedResponse, Key
from odradek.broker.serving.responses import frame as response_frame
from odradek.broker.turns import LARGE_BYTES, Steps, in_turns, one_turn
from odradek.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, InvalidTopicError, KafkaError, UnavailableError, validate_topic_name
from odradek.model.names import INTERNAL_TOPICS
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_request, encode_response, optional
from odradek.protocol.primitives import Meter
from odradek.security import NOT_ASKED_FOR, AclOperation, ResourceType
from odradek.wire.reply import Buffers, Reply

if TYPE_CHECKING:
    from kio.schema.metadata.v13.request import MetadataRequest as Message
    from kio.schema.metadata.v13.request import MetadataRequestTopic

_TOPIC_IDS_FROM: Final = 12
_ERROR_OF_REQUEST_FROM: Final = 13
_NO_TOPIC_ID: Final = UUID(int=0)
MOST_CREATED: Final = 100
"""How many topics one request creates. More are unknown in the response, so that clients repeat the request."""
_CREATION_WAIT_S: Final = 1.0
"""How long a response waits for topics to be created, and later requests of its connection with it (decision 21)."""
_MAY_FORBID_FROM: Final = 4
"""Clients of earlier versions create what they refresh, even a topic that they have just deleted: nothing waits."""


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return a response from the cache or the image, or a pending reply while topics are created."""
    header = context.header
    body = bytes(frame[header.body_offset :])
    if context.session.admission.may_refuse:
        try:
            context.check_request(None)
        except KafkaError as error:
            return _refuse(broker, context, body, error)
    key = header.api_version, context.listener, context.visibility, body
    cached = broker.response_cache.get(broker.image, key)
    if cached is not None:
        return _respond(broker, context, cached)
    meter = Meter(broker.config.most_request_entries)
    decoding = partial(decode_request, ApiKey.METADATA, header.api_version, body, meter=meter)
    if len(body) > LARGE_BYTES:
        serving = broker.dispatcher.handle_large(
            context, meter, decoding, lambda request: _serve_later(broker, context, request, [])
        )
        return broker.dispatcher.answer_later(context, serving, meter)
    request = decoding()
    keys = [key]
    if request.topics is None:
        # All requests for all topics share a response, whatever unknown fields they have; no body is as short as this.
        keys.append((*key[:3], bytes(_wants_operations(request))))
        cached = broker.response_cache.get(broker.image, keys[-1])
        if cached is not None:
            return _respond(broker, context, cached)
    image, absent = broker.image, one_turn(_absent(broker, context, request))
    message = None if absent is None or absent[0][0] else one_turn(_message(image, context, request, absent[0][1]))
    if message is None:
        return broker.dispatcher.answer_later(context, _serve_later(broker, context, request, keys), meter)
    return _respond(broker, context, _store(broker, image, keys, _answer(header.api_version, message[0])))


async def _serve_later(
    broker: BrokerParts, context: RequestContext, request: "Message", keys: Sequence[Key]
) -> Buffers:
    """Create absent topics, and return the response, which takes more than one turn."""
    absent, errors = await in_turns(_absent(broker, context, request))
    if absent:
        await _create(broker, absent, errors, wait_s=_CREATION_WAIT_S if context.api_version >= _MAY_FORBID_FROM else 0)
    await broker.dispatcher.begin_long(context)
    image = broker.image
    message = await in_turns(_message(image, context, request, errors))
    answer = await broker.dispatcher.worker.submit(lambda: _answer(context.api_version, message))
    return _respond(broker, context, _store(broker, image, () if absent else keys, answer))


def _store(broker: BrokerParts, image: ClusterImage, keys: Sequence[Key], answer: CachedResponse) -> CachedResponse:
    """Store the response for requests with these keys, unless the image has changed."""
    for key in keys if image is broker.image else ():
        broker.response_cache.put(image, key, answer)
    return answer


def _refuse(broker: BrokerParts, context: RequestContext, body: bytes, error: KafkaError) -> Reply:
    """Return a response that has `error` for each requested topic, and no brokers."""
    version = context.api_version
    request = decode_request(ApiKey.METADATA, version, body, meter=Meter(broker.config.most_request_entries))
    topics = dict.fromkeys(request.topics or ())
    message = {
        "brokers": [],
        "cluster_id": None,
        "controller_id": -1,
        "topics": [
            _unknown(topic.name if version >= _TOPIC_IDS_FROM else topic.name or "", error.code, _topic_id(topic))
            | {"topic_authorized_operations": NOT_ASKED_FOR}
            for topic in topics
        ],
        "cluster_authorized_operations": NOT_ASKED_FOR,
        "error_code": error.code,
    }
    return _respond(broker, context, _answer(version, message))


async def _create(broker: BrokerParts, absent: list[str], errors: dict[str, ErrorCode], *, wait_s: float) -> None:
    """Create topics, and add the errors of those that cannot be created to `errors`."""

    async def create(name: str) -> None:
        try:
            await broker.auto_topic_creation_manager.ensure(NewTopic(name=name))
        except KafkaError as error:
            errors[name] = error.code
        except UnavailableError:
            errors[name] = ErrorCode.leader_not_available

    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s), asyncio.TaskGroup() as group:
            for name in absent:
                group.create_task(create(name))


def _answer(version: int, message: dict[str, Any]) -> CachedResponse:
    """Return the encoded response, and its error codes."""
    errors = Counter(int(each["error_code"]) for topic in message["topics"] for each in (topic, *topic["partitions"]))
    if version >= _ERROR_OF_REQUEST_FROM:
        errors[int(message.get("error_code", 0))] += 1
    del errors[0]
    return CachedResponse(encode_response(ApiKey.METADATA, version, message), errors)


def _respond(broker: BrokerParts, context: RequestContext, answer: CachedResponse) -> Buffers:
    """Count the errors of a response, and return its frame."""
    for code, count in answer.errors.items():
        broker.counters.erred(ApiKey.METADATA, code, count)
    return response_frame(context.header, answer.body)


def _absent(
    broker: BrokerParts, context: RequestContext, request: "Message"
) -> Steps[tuple[list[str], dict[str, ErrorCode]]]:
    """Return the topics that the request creates, at most `MOST_CREATED`, and the errors of those that it may not."""
    if not broker.config.auto_create_topics_enable or not optional(request, "allow_auto_topic_creation", True):
        return [], {}
    names: dict[str, None] = {}
    for topic in request.topics or ():
        yield 1
        if topic.name is None or topic.name in broker.image.topics or _topic_id(topic):
            continue
        if topic.name in INTERNAL_TOPICS:
            continue  # the coordinator creates it
        if _is_valid(topic.name) and topic.name not in broker.image.deleting:
            names[topic.name] = None
    hidden = yield from context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    absent = [name for name in names if name not in hidden][:MOST_CREATED]
    if not absent or context.allows(AclOperation.CREATE, ResourceType.CLUSTER, quietly=True):
        return absent, {}
    denied = yield from context.denied(AclOperation.CREATE, ResourceType.TOPIC, absent)
    errors = dict.fromkeys(denied, ErrorCode.topic_authorization_failed)
    return [name for name in absent if name not in denied], errors


def _message(
    image: ClusterImage, context: RequestContext, request: "Message", errors: dict[str, ErrorCode]
) -> Steps[dict[str, Any]]:
    listener = context.listener
    wants_cluster, wants_operations = _wants_operations(request)
    endpoints = [(broker, broker.endpoint(listener)) for broker in image.brokers.values()]
    topics = []
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    hidden: frozenset[str] = frozenset()
    if wants_all:
        hidden = yield from context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, image.topics, quietly=True)
    for topic in _topics(image, context, None if wants_all else request.topics, hidden, errors):
        operations = NOT_ASKED_FOR
        if wants_operations and topic["error_code"] == 0:
            operations = context.authorized_operations(ResourceType.TOPIC, topic["name"])
        topics.append({**topic, "topic_authorized_operations": operations})
        yield 6 + len(topic["partitions"]) // 2 + 8 * wants_operations
    return {
        "brokers": [
            {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in endpoints
            if endpoint is not None
        ],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(context) if wants_cluster else NOT_ASKED_FOR,
    }


def _topics(
    image: ClusterImage,
    context: RequestContext,
    requested: "Iterable[MetadataRequestTopic] | None",
    hidden: Container[str],
    errors: dict[str, ErrorCode],
) -> Iterator[dict[str, Any]]:
    """Yield the requested topics, or all but the `hidden` ones if `requested` is None."""
    version, listener = context.api_version, context.listener
    if requested is None:
        for image_topic in image.topics.values():
            if image_topic.name not in hidden:
                yield _known(image, image_topic, listener)
        return
    for wanted in dict.fromkeys(requested):  # a repeated topic is in the response once, as in Kafka
        topic_id = _topic_id(wanted)
        if version < _TOPIC_IDS_FROM and (wanted.name is None or topic_id):
            yield _unknown(wanted.name or "", ErrorCode.invalid_request, topic_id)
            continue
        topic = image.topics.get(wanted.name or "") if topic_id is None else image.topic_by_id(topic_id)
        name = topic.name if topic is not None else wanted.name
        if name and not context.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            # Topic ids are not secret, unlike names and their existence.
            yield _unknown(name if topic_id is None else None, ErrorCode.topic_authorization_failed, topic_id)
        elif topic is not None:
            yield _known(image, topic, listener)
        elif topic_id is not None:
            yield _unknown(None, ErrorCode.unknown_topic_id, topic_id)
        elif not _is_valid(wanted.name or ""):
            yield _unknown(wanted.name or "", ErrorCode.invalid_topic_exception, None)
        else:
            yield _unknown(wanted.name, errors.get(wanted.name or "", ErrorCode.unknown_topic_or_partition), None)


def _topic_id(wanted: "MetadataRequestTopic") -> UUID | None:
    topic_id: UUID | None = getattr(wanted, "topic_id", None)  # versions from 10 have it
    return topic_id


def _wants_operations(request: "Message") -> tuple[bool, bool]:
    """Return whether the response has the authorized operations of the cluster, and of topics."""
    wants_cluster = optional(request, "include_cluster_authorized_operations", False)
    return wants_cluster, optional(request, "include_topic_authorized_operations", False)


def _known(image: ClusterImage, topic: TopicImage, listener: str) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            _partition(image.brokers, number, partition, listener) for number, partition in topic.partitions.items()
        ],
    }


def _partition(brokers: "Any", number: int, partition: PartitionImage, listener: str) -> dict[str, Any]:
    """Return a partition, with an error if it has no live leader, or the leader no endpoint for this listener."""
    leader: BrokerImage | None = brokers.get(partition.leader)
    error = ErrorCode.none
    if leader is None:
        error = ErrorCode.leader_not_available
    elif leader.endpoint(listener) is None:
        error = ErrorCode.listener_not_found
    return {
        "error_code": error,
        "partition_index": number,
        "leader_id": partition.leader if leader is not None else -1,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [replica for replica in partition.replicas if replica not in brokers],
    }


def _unknown(name: str | None, error: ErrorCode, topic_id: UUID | None) -> dict[str, Any]:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id or _NO_TOPIC_ID,
        "is_internal": False,
        "partitions": [],
    }


def _is_valid(name: str) -> bool:
    try:
        validate_topic_name(name)
    except InvalidTopicError:
        return False
    return True
