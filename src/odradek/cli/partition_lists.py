"""Parsing of partitions and broker ids in options, and in the JSON files of Kafka's tools."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, Final

import click

from odradek.cli.checks import Checked
from odradek.clients import Admin
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import PreferredReplicaElectionNode, ReassignPartitionsNode
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition

_NUMBERS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_PARTITIONS: Final = 1_000_000
"""Limit of the partitions in one range."""
Assignment = Mapping[TopicPartition, tuple[int, ...]]


def broker_list(text: str) -> tuple[int, ...]:
    """Parse `1,2,3`, brokers in order, as an option's `type`. Raises `click.BadParameter`."""
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and int(each) < 2**31 for each in numbers):
        raise click.BadParameter(f"{text!r} is not a list of broker ids, such as 1,2,3")
    brokers = tuple(map(int, numbers))
    twice = [broker for broker, times in Counter(brokers).items() if times > 1]
    if twice:
        raise click.BadParameter(f"{text!r} has broker {twice[0]} twice")
    return brokers


def read_assignment(file: IO[bytes]) -> Assignment:
    """Return the replicas in a file of `kafka-reassign-partitions`. Raises `ConfigurationError` if it is invalid."""
    name, data = getattr(file, "name", "stdin"), file.read()
    try:
        replicas = ReassignPartitionsNode.decode(name, data).replicas
    except BrokenNodeError as error:
        raise ConfigurationError(f"{name}: {error.reason}") from None
    entries = json.loads(data)["partitions"]
    _check_once(name, entries)
    if not replicas:
        raise ConfigurationError(f"{name} names no partition; name at least one")
    for each in entries:
        if any(directory != "any" for directory in each.get("log_dirs") or ()):
            raise ConfigurationError(f"{name}: log_dirs other than any are not supported; leave them out")
    return dict(sorted(replicas.items()))


def read_partitions(file: IO[bytes]) -> list[TopicPartition]:
    """Return the partitions in a file of `kafka-leader-election`. Raises `ConfigurationError` if it is invalid."""
    name, data = getattr(file, "name", "stdin"), file.read()
    try:
        partitions = PreferredReplicaElectionNode.decode(name, data).partitions
    except BrokenNodeError as error:
        raise ConfigurationError(f"{name}: {error.reason}") from None
    _check_once(name, json.loads(data)["partitions"])
    return sorted(partitions)


def assignment_json(assignment: Assignment) -> str:
    """Return the one-line JSON that `read_assignment` reads."""
    return ReassignPartitionsNode(replicas=assignment).encode().decode()


async def replicas_of(client: Admin, keys: Iterable[TopicPartition]) -> Assignment:
    """Return the current replicas of partitions. Raises `KafkaError` for unknown topics and partitions."""
    wanted = sorted(keys)
    topics = await client.describe_topics(sorted({key.topic for key in wanted}))
    for key in wanted:
        if key.partition not in topics[key.topic].partitions:
            message = (
                f"there is no partition {key.topic}-{key.partition}: {key.topic} has {_numbers(topics[key.topic])}"
            )
            raise KafkaError(ErrorCode.unknown_topic_or_partition, message)
    return {key: topics[key.topic].partitions[key.partition].replicas for key in wanted}


async def partitions_of(client: Admin, topics: Sequence[str], numbers: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions `numbers` of each topic, or all partitions. Raises `KafkaError` for unknown ones."""
    if numbers:
        return list(
            await replicas_of(client, [TopicPartition(topic, number) for topic in topics for number in numbers])
        )
    described = await client.describe_topics(topics)
    return [TopicPartition(name, number) for name in sorted(described) for number in described[name].partitions]


def topic_and_partitions(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse `TOPIC` or `TOPIC:N,N-N,…`, as an option's value; None means all. Raises `click.BadParameter`."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    found: list[int] = []
    for part in numbers.split(","):
        match = _NUMBERS.fullmatch(part.strip())
        if match is None or not 0 <= (last := int(match[2] or match[1])) - int(match[1]) < _MOST_PARTITIONS:
            raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:N,N-N,…, such as t:0,4-7")
        found += range(int(match[1]), last + 1)
    return topic, tuple(found)


TOPICS: Final = Checked("topic[:n,…]", topic_and_partitions)


async def partitions_of_topics(
    client: Admin, texts: Iterable[str], numbers: Sequence[int] = ()
) -> list[TopicPartition]:
    """Return the partitions of options of the form `TOPIC` or `TOPIC:N,N,…`; `numbers` are those of `--partition`.

    Raises `KafkaError` for unknown ones.
    """
    found: dict[TopicPartition, None] = {}
    for topic, own in map(topic_and_partitions, texts):
        found |= dict.fromkeys(await partitions_of(client, [topic], own or numbers))
    return sorted(found)


def ids(brokers: Iterable[int]) -> str | None:
    """Return broker ids as a table's cell, None if there are none."""
    return ",".join(map(str, brokers)) or None


def _check_once(name: str, entries: list[dict[str, Any]]) -> None:
    counted = Counter((str(each["topic"]), int(each["partition"])) for each in entries)
    for (topic, number), times in counted.items():
        if times > 1:
            raise ConfigurationError(f"{name}: {topic}-{number} is named {times} times; name it once")


def _numbers(topic: Any) -> str:
    last = len(topic.partitions) - 1
    return "only 0" if last == 0 else f"0 to {last}"
