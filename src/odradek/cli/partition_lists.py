"""Parsing of partitions and broker ids in options, and in the JSON files of Kafka's tools."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Final, TypeVar

import click
from msgspec import Struct

from odradek.cli.checks import Checked
from odradek.clients import Admin
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.metadata.node_fields import BrokenNodeError, Fields
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, validate_topic_name

_NUMBERS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_PARTITIONS: Final = 1_000_000
"""Limit of the partitions in one range."""
_ANY: Final = "any"
"""The log directory of a replica whose broker chooses one."""
T = TypeVar("T")
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


class AssignmentFile(Struct, frozen=True, kw_only=True):
    """A file of `kafka-reassign-partitions`: replicas, and by broker their log directories other than `any`."""

    name: str
    replicas: Assignment
    directories: Mapping[TopicPartition, Mapping[int, str]]

    @property
    def _by_broker(self) -> Mapping[int, Mapping[TopicPartition, str]]:
        brokers = sorted({broker for each in self.directories.values() for broker in each})
        return {
            broker: {key: each[broker] for key, each in self.directories.items() if broker in each}
            for broker in brokers
        }

    async def check_directories(self, client: Admin) -> None:
        """Raise `ConfigurationError` for a directory that a broker does not have."""
        for broker, wanted in self._by_broker.items():
            known = [each.log_dir for each in await client.describe_log_dirs(broker, wanted)]
            for key, directory in wanted.items():
                if directory not in known:
                    raise ConfigurationError(
                        f"{self.name}: broker {broker} has no directory {directory} for {key}: "
                        f"log_dirs names {' or '.join(known)}, or any"
                    )

    async def move_directories(self, client: Admin) -> None:
        """Begin to move the replicas to their directories; those that a broker does not have yet begin there."""
        for broker, wanted in self._by_broker.items():
            try:
                await client.alter_replica_log_dirs(broker, wanted)
            except RefusedPartitionsError as error:
                lasting = {key: e for key, e in error.errors.items() if e.code != ErrorCode.replica_not_available}
                if lasting:
                    raise RefusedPartitionsError(lasting) from None

    async def misplaced(self, client: Admin) -> dict[TopicPartition, bool]:
        """Return the partitions of which a replica is not in its directory, and whether all of these still move.

        A replica that its broker has not created yet counts as one that moves.
        """
        found: dict[TopicPartition, bool] = {}
        for broker, wanted in self._by_broker.items():
            present = await client.describe_log_dirs(broker, wanted)
            places = {key: each.log_dir for each in present for key in each.sizes}
            moving = {key for each in present for key in each.future_sizes}
            for key, path in wanted.items():
                if places.get(key) != path or key in moving:
                    found[key] = found.get(key, True) and (key in moving or key not in places)
        return found


def read_assignment(file: IO[bytes]) -> AssignmentFile:
    """Read a file of `kafka-reassign-partitions`. Raises `ConfigurationError` if it is invalid."""

    def replicas_and_directories(fields: Fields) -> tuple[tuple[int, ...], dict[int, str]]:
        replicas = fields.integers("replicas")
        directories = fields.texts("log_dirs", (_ANY,) * len(replicas))
        if len(directories) != len(replicas):
            raise fields.broken("log_dirs", "a list with one directory, or any, for each replica")
        return replicas, {broker: each for broker, each in zip(replicas, directories, strict=True) if each != _ANY}

    entries = _entries(file, replicas_and_directories)
    return AssignmentFile(
        name=getattr(file, "name", "stdin"),
        replicas={key: replicas for key, (replicas, _) in entries.items()},
        directories={key: directories for key, (_, directories) in entries.items()},
    )


def read_partitions(file: IO[bytes]) -> list[TopicPartition]:
    """Return the partitions in a file of `kafka-leader-election`. Raises `ConfigurationError` if it is invalid."""
    return list(_entries(file, lambda _: None))


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
    validate_topic_name(topic)
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


def _entries(file: IO[bytes], value: Callable[[Fields], T]) -> dict[TopicPartition, T]:
    """Return the `value` of each of the partitions in a JSON file, sorted. Raises `ConfigurationError`."""
    name, found, times = getattr(file, "name", "stdin"), dict[TopicPartition, T](), Counter[TopicPartition]()
    try:
        fields = Fields(name, file.read())
        if (version := fields.integer("version", 1)) != 1:
            raise BrokenNodeError(name, f"version {version} is not supported; write version 1")
        for each in fields.objects("partitions"):
            times[key := each.topic_partition()] += 1
            found[key] = value(each)
    except BrokenNodeError as error:
        raise ConfigurationError(f"{name}: {error.reason}") from None
    for key, count in times.items():
        if count > 1:
            raise ConfigurationError(f"{name}: {key} is named {count} times; name it once")
    if not found:
        raise ConfigurationError(f"{name} names no partition; name at least one")
    return dict(sorted(found.items()))


def _numbers(topic: Any) -> str:
    last = len(topic.partitions) - 1
    return "only 0" if last == 0 else f"0 to {last}"
