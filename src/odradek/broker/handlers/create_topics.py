"""CreateTopics: create topics. Only the controller serves it.

Each topic succeeds or fails alone. When the response is sent, the topics are in this broker's metadata and accept
records. Versions: 5 returns the created topics (KIP-525), 6 quotas (KIP-599), 7 topic ids (KIP-516). In all versions
-1 stands for the default number of partitions or replicas (KIP-464), as in Kafka 4.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from odradek.broker.controller.machine.topic_creation import TopicCollisionError, TopicCreation
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import HEAVY, at_once, cooperatively, in_turns
from odradek.config.broker import BrokerConfig
from odradek.config.describe import describe_topic
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError
from odradek.model.names import CLUSTER_METADATA_TOPIC
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.create_topics.v7.request import CreatableTopic
    from kio.schema.create_topics.v7.request import CreateTopicsRequest as Message

Overrides = tuple[tuple[str, str], ...]
_STRICT_FROM: Final = 6
_CONFIGURATIONS: Final = 16
"""How many different configurations of new topics are cached during one request."""


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per topic; a topic that is named twice gets INVALID_REQUEST."""
    may_create_all = context.allows(AclOperation.CREATE, ResourceType.CLUSTER, quietly=True)
    names = [topic.name for topic in message.topics]
    create, describe = AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS
    to_check = () if may_create_all else names
    denied = await in_turns(context.denied(create, ResourceType.TOPIC, to_check))
    hidden = await in_turns(context.denied(describe, ResourceType.TOPIC, names, quietly=True))
    named = Counter(topic.name for topic in message.topics)
    wanted: list[NewTopic] = []
    errors: dict[str, KafkaError] = {}
    validate_only = optional(message, "validate_only", False)
    async for topic in cooperatively(message.topics, _weight):
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name in denied:
                raise authorization_error(ResourceType.TOPIC)
            new = _new_topic(topic)
            if not validate_only:
                count = _partitions(broker.config, new)
                broker.quotas.take_mutations(context, count, strict_from=_STRICT_FROM)
            wanted.append(new)
        except KafkaError as error:
            errors[topic.name] = error.with_traceback(None)
    try:
        created = {each.name: each for each in await broker.create_topics(wanted, validate_only=validate_only)}
    except KafkaError as error:
        created = {each.name: TopicCreation(name=each.name, error=error) for each in wanted}
    failed = [each for each in wanted if not validate_only and created[each.name].error is not None]
    if failed:
        count = sum(_partitions(broker.config, each) for each in failed)
        broker.quotas.take_mutations(context, -count, strict_from=_STRICT_FROM)
    created |= {name: TopicCreation(name=name, error=error) for name, error in errors.items()}
    # Describing a configuration takes 0.2 ms, and most topics of a request have the same one.
    config = lru_cache(maxsize=_CONFIGURATIONS)(lambda overrides: _configs(broker.config, dict(overrides)))
    return {
        "topics": [
            _without_config(result) if name in hidden and created[name].error is None else result
            async for name in cooperatively(named)
            for result in (_result(context, created[name], config),)
        ]
    }


def _weight(topic: "CreatableTopic") -> int:
    return HEAVY + len(topic.assignments) + len(topic.configs)


def _without_config(result: dict[str, object]) -> dict[str, object]:
    """Return `result` without the configuration, for a principal that may not describe it (KIP-525)."""
    return result | {
        "topic_config_error_code": ErrorCode.topic_authorization_failed,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _new_topic(topic: "CreatableTopic") -> NewTopic:
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {topic.name} is prohibited.")
    assignment: dict[int, tuple[int, ...]] = {
        each.partition_index: tuple(each.broker_ids) for each in topic.assignments
    }
    if len(assignment) != len(topic.assignments):
        twice = Counter(each.partition_index for each in topic.assignments).most_common(1)[0][0]
        raise KafkaError(
            ErrorCode.invalid_replica_assignment, f"Found multiple manual partition assignments for partition {twice}"
        )
    config = {each.name: each.value for each in topic.configs}
    if len(config) != len(topic.configs):
        raise KafkaError(ErrorCode.invalid_config, "a configuration key is given twice")
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        config=config,
    )


def _partitions(config: BrokerConfig, topic: NewTopic) -> int:
    count = len(topic.assignment) or topic.num_partitions
    return config.num_partitions if count == -1 else max(count, 0)


def _result(
    context: RequestContext, creation: TopicCreation, config: Callable[[Overrides], list[dict[str, object]]]
) -> dict[str, object]:
    if creation.error is not None or creation.plan is None:
        error = creation.error or KafkaError(ErrorCode.unknown_server_error)
        if isinstance(error, TopicCollisionError) and at_once(
            context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, error.others, quietly=True)
        ):
            error = error.without_names()
        return {
            "name": creation.name,
            "topic_id": None,
            "error_code": error.code,
            "error_message": error.message,
            "configs": [],
        }
    plan = creation.plan
    return {
        "name": plan.name,
        "topic_id": plan.topic_id,
        "error_message": None,
        "num_partitions": len(plan.replicas),
        "replication_factor": len(plan.replicas[0]),
        "configs": config(tuple(plan.config.items())),
    }


def _configs(config: BrokerConfig, overrides: Mapping[str, str]) -> list[dict[str, object]]:
    return [
        {
            "name": entry.name,
            "value": None if entry.sensitive else entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.sensitive,
        }
        for entry in describe_topic(config, overrides)
    ]
