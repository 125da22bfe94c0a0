"""Creates, deletes and describes topics, and adds partitions, by requests to the controller."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from odradek.clients.admin.descriptions import NewTopic, TopicDescription, topic_description
from odradek.clients.admin.results import RefusedTopicsError, errors_of
from odradek.clients.arguments import broker_ids, instances_of, names_of, whole_number
from odradek.clients.cluster import Cluster
from odradek.clients.metadata import ClusterMetadata, merge, partition_metadata
from odradek.clients.retry import ask_each, retrying
from odradek.model import ErrorCode, KafkaError, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional

_PAGE_PARTITIONS: Final = 2_000
"""The partitions in one response, as in Kafka's admin client; brokers return no more by default."""


class UnknownTopicError(KafkaError):
    """The topic does not exist. Unlike Kafka's error it is not retriable, because no producer is creating the topic."""

    retriable = False

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


async def create_topics(cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
    """Create topics, or with `validate_only` only check whether they can be created.

    Raises `KafkaError` for a single topic or a name given twice, `RefusedTopicsError` for some of several topics.
    """
    listed = instances_of(NewTopic, topics)
    wanted = {topic.name: topic for topic in listed}
    for name, times in Counter(topic.name for topic in listed).items():
        if times > 1:
            raise KafkaError(ErrorCode.invalid_request, f"topic {name!r} is to be created {times} times; name it once")

    async def ask(names: list[str]) -> dict[str, KafkaError | None]:
        message = {
            "topics": [wanted[name].message() for name in names],
            "timeout": cluster.timeout_ms,
            "validate_only": validate_only,
        }
        connection = await cluster.controller()
        response = await connection.request(ApiKey.CREATE_TOPICS, message)
        return {topic.name: topic_error(topic.name, topic) for topic in response.topics}

    await _change(cluster, wanted, ask)


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """Delete topics and their records.

    Raises `KafkaError` if a single topic is refused, `RefusedTopicsError` if some of several topics are refused.
    """

    async def ask(some: list[str]) -> dict[str, KafkaError | None]:
        message = {
            "topics": [{"name": name, "topic_id": None} for name in some],
            "topic_names": some,
            "timeout": cluster.timeout_ms,
        }
        connection = await cluster.controller()
        response = await connection.request(ApiKey.DELETE_TOPICS, message)
        return {topic.name: topic_error(topic.name, topic) for topic in response.responses}

    await _change(cluster, names_of(names), ask)


async def create_partitions(
    cluster: Cluster,
    name: str,
    total: int,
    *,
    assignments: Iterable[Iterable[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Increase a topic's number of partitions to `total`; `assignments` has the replicas of each new one, in order.

    Afterwards a key may belong to another partition. Raises `KafkaError` INVALID_PARTITIONS and others.
    """
    placed = None if assignments is None else [{"broker_ids": broker_ids(each)} for each in assignments]
    message = {
        "topics": [{"name": name, "count": whole_number("total", total, bits=32), "assignments": placed}],
        "timeout": cluster.timeout_ms,
        "validate_only": validate_only,
    }

    async def ask(_: list[str]) -> dict[str, KafkaError | None]:
        connection = await cluster.controller()
        response = await connection.request(ApiKey.CREATE_PARTITIONS, message)
        return {topic.name: topic_error(topic.name, topic) for topic in response.results}

    await _change(cluster, [name], ask)


async def _change(cluster: Cluster, names: Iterable[str], ask: Any) -> None:
    """Call `ask` with retries. Raises the error of the topic if there is one name, else `RefusedTopicsError`."""
    results: dict[str, KafkaError | None] = await ask_each(cluster, names, ask)
    errors = errors_of(results)
    if errors:
        raise next(iter(errors.values())) if len(results) == 1 else RefusedTopicsError(errors)


async def describe_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics with partitions, leaders and replicas. Raises `KafkaError` for an unknown topic.

    Brokers with DescribeTopicPartitions get a request for every 2,000 partitions.
    """
    wanted = list(dict.fromkeys(names_of(names)))

    async def attempt() -> dict[str, TopicDescription]:
        try:
            return await _describe_in_pages(cluster, wanted)
        except KafkaError as error:
            if error.code != ErrorCode.unsupported_version:
                raise
        return await _describe_at_once(cluster, wanted)

    found = await retrying(cluster, attempt) if wanted else {}
    return {name: found[name] for name in wanted}


async def _describe_at_once(cluster: Cluster, names: list[str]) -> dict[str, TopicDescription]:
    """Describe topics by Metadata, for brokers before Kafka 3.8."""
    metadata = merge(ClusterMetadata(), await cluster.fetch_metadata(names, controller=True))
    for name in names:
        topic = metadata.topics.get(name)
        if topic is None or topic.error_code == ErrorCode.unknown_topic_or_partition:
            raise UnknownTopicError(name)
        if topic.error_code not in {ErrorCode.none, ErrorCode.leader_not_available}:
            raise KafkaError(topic.error_code, f"topic {name!r}: {explained(topic.error_code)}")
    return {name: topic_description(metadata.topics[name]) for name in names}


async def _describe_in_pages(cluster: Cluster, names: list[str]) -> dict[str, TopicDescription]:
    """Describe topics by DescribeTopicPartitions, `_PAGE_PARTITIONS` at a time (KIP-966)."""
    found: dict[str, TopicDescription] = {}
    cursor = None
    while True:
        message = {
            "topics": [{"name": name} for name in sorted(names)],
            "response_partition_limit": _PAGE_PARTITIONS,
            "cursor": cursor,
        }
        page = await cluster.request_any(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, controller=True)
        for topic in page.topics:
            if (error := topic_error(topic.name, topic)) is not None:
                raise error
            partitions = {each.partition_index: partition_metadata(each) for each in topic.partitions}
            before = found.get(topic.name)
            if before is not None and before.topic_id != topic.topic_id:
                raise KafkaError(ErrorCode.inconsistent_topic_id, f"topic {topic.name!r} was created again meanwhile")
            found[topic.name] = TopicDescription(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=partitions if before is None else {**before.partitions, **partitions},
            )
        if page.next_cursor is None:
            for name in names:
                if name not in found:
                    raise UnknownTopicError(name)
            return found
        after = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
        if after == cursor:
            raise KafkaError(ErrorCode.unknown_server_error, f"the broker repeats the page of topics after {after}")
        cursor = after


async def list_topics(cluster: Cluster, *, include_internal: bool = False) -> list[TopicDescription]:
    """Return the descriptions of all topics (internal ones only with `include_internal`), sorted by name."""
    metadata = await current_metadata(cluster, None)
    return [
        topic_description(topic)
        for _, topic in sorted(metadata.topics.items())
        if include_internal or not topic.is_internal
    ]


async def current_metadata(cluster: Cluster, names: list[str] | None) -> ClusterMetadata:
    """Return the controller's metadata of `names` (None: all topics), without storing it in `cluster`."""

    async def attempt() -> ClusterMetadata:
        return merge(ClusterMetadata(), await cluster.fetch_metadata(names, controller=True))

    return await retrying(cluster, attempt)


def topic_error(name: str, answer: Any) -> KafkaError | None:
    """Return the error of a topic in a response, if any; UNKNOWN_TOPIC_OR_PARTITION as an `UnknownTopicError`."""
    if answer.error_code == ErrorCode.unknown_topic_or_partition:
        return UnknownTopicError(name)
    return answer_error(f"topic {name!r}", answer)


def answer_error(what: str, answer: Any) -> KafkaError | None:
    """Return the error of a response or of an entry in it, if any; its text names `what`."""
    if answer.error_code == ErrorCode.none:
        return None
    reason = optional(answer, "error_message", None) or explained(answer.error_code)
    return KafkaError(answer.error_code, reason if what.lower() in reason.lower() else f"{what}: {reason}")
