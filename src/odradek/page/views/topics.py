"""The views of topics: a list, one topic with its partitions and configuration; create, alter, delete."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from odradek.clients.admin.descriptions import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    TopicDescription,
)
from odradek.clients.admin.health import read_log_dirs
from odradek.clients.metadata import PartitionMetadata
from odradek.clients.offsets import EARLIEST, LATEST
from odradek.config import Alteration, AlterOperation
from odradek.model import ConfigurationError, OdradekError, TopicPartition, validate_topic_name
from odradek.model.names import INTERNAL_TOPICS
from odradek.page.lists import Listing, listing
from odradek.page.overview import TopicRow, overview, sizes_of
from odradek.page.view import Action, Done, Page, PageRequest, View

_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "the broker, at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, at run time",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's file",
    ConfigSource.DEFAULT_CONFIG: "Kafka's default",
}


class PartitionRow(Struct, frozen=True, kw_only=True):
    """A partition of a topic; offsets and size are None where they are unknown."""

    number: int
    partition: PartitionMetadata
    first_offset: int | None
    end_offset: int | None
    size_bytes: int | None


class ConfigRow(Struct, frozen=True, kw_only=True):
    """A key of the topic's configuration, and where its value is set."""

    entry: ConfigEntry
    is_own: bool
    source: str


class TopicPage(Struct, frozen=True, kw_only=True):
    """The data of the view of one topic."""

    topic: TopicDescription
    partitions: Listing[PartitionRow]
    records: int | None
    size_bytes: int | None
    configs: Sequence[ConfigRow]


async def topics(asked: PageRequest) -> Listing[TopicRow]:
    """Return the topics that the address asks for; internal ones with `internal=1`."""
    internal = bool(asked.query.get("internal"))
    rows = [row for row in (await overview(asked)).topics if internal or not row.is_internal]
    keys = {
        "name": lambda row: row.name,
        "partitions": lambda row: row.partitions,
        "replicas": lambda row: row.replication_factor,
        "sync": lambda row: row.out_of_sync,
        "size": lambda row: row.size_bytes,
    }
    return listing(asked, rows, keys, text=lambda row: row.name, default="name")


async def topic(asked: PageRequest) -> TopicPage:
    """Return one topic with its partitions. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
    admin, name = await asked.admin(), asked.path["topic"]
    found = (await admin.describe_topics([name]))[name]
    led = [TopicPartition(name, number) for number, each in found.partitions.items() if each.leader != -1]
    online = {
        broker for each in found.partitions.values() for broker in set(each.replicas) - set(each.offline_replicas)
    }
    first, end, log_dirs, configs = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, EARLIEST)),
        admin.list_offsets(dict.fromkeys(led, LATEST)),
        read_log_dirs(admin, online, [TopicPartition(name, number) for number in found.partitions]),
        admin.describe_configs([_resource(name)]),
        return_exceptions=True,
    )
    if isinstance(log_dirs, BaseException):
        raise log_dirs
    sizes = sizes_of(log_dirs)
    rows = [
        PartitionRow(
            number=number,
            partition=each,
            first_offset=_offset(first, TopicPartition(name, number)),
            end_offset=_offset(end, TopicPartition(name, number)),
            size_bytes=None if sizes is None else sizes.get(TopicPartition(name, number), 0),
        )
        for number, each in found.partitions.items()
    ]
    known = [
        row.end_offset - row.first_offset for row in rows if row.end_offset is not None and row.first_offset is not None
    ]
    keys = {
        "name": lambda row: row.number,
        "end": lambda row: row.end_offset,
        "size": lambda row: row.size_bytes,
        "leader": lambda row: row.partition.leader,
    }
    return TopicPage(
        topic=found,
        partitions=listing(asked, rows, keys, text=lambda row: str(row.number), default="name"),
        records=sum(known) if known else None,
        size_bytes=None if sizes is None else sum(row.size_bytes or 0 for row in rows),
        configs=_configs(configs),
    )


def _offset(found: object, partition: TopicPartition) -> int | None:
    """Return an offset of a ListOffsets result, None if that is an error."""
    if not isinstance(found, Mapping):
        _raise_foreign(found)
        return None
    offset = found.get(partition)
    return None if offset is None else int(offset.offset)


def _configs(found: object) -> list[ConfigRow]:
    """Return the keys of DescribeConfigs' result, the topic's own first; none if it is an error."""
    if not isinstance(found, Mapping):
        _raise_foreign(found)
        return []
    (entries,) = found.values()
    rows = [
        ConfigRow(
            entry=each,
            is_own=each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG,
            source=_SOURCES.get(each.source, each.source.name.lower()),
        )
        for each in entries
    ]
    return sorted(rows, key=lambda row: (not row.is_own, row.entry.name))


def _raise_foreign(found: object) -> None:
    if isinstance(found, BaseException) and not isinstance(found, OdradekError):
        raise found


# ---- changes ----------------------------------------------------------------------------------------------------


async def nothing(_asked: PageRequest) -> None:
    """Return no data, for a form that shows none."""


async def described(asked: PageRequest) -> TopicDescription:
    """Return the topic of a form. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
    name = asked.path["topic"]
    return (await (await asked.admin()).describe_topics([name]))[name]


async def create(asked: PageRequest) -> Done:
    """Create a topic from the form's name, partitions, replicas and configuration, a `key=value` a line."""
    name = asked.form.get("name", "").strip()
    validate_topic_name(name)
    await (await asked.admin()).create_topic(
        name,
        partitions=asked.number("partitions", -1, least=1, most=2**31 - 1),
        replication_factor=asked.number("replicas", -1, least=1, most=32_767),
        configs=dict(_lines(asked.form.get("configs", ""))),
    )
    return Done(address=f"/topics/{name}", message=f"Topic {name} is created.")


def _lines(text: str) -> Iterable[tuple[str, str]]:
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{line!r} is not KEY=VALUE: write one configuration a line")
        yield key.strip(), value.strip()


async def add_partitions(asked: PageRequest) -> Done:
    """Increase the number of partitions."""
    name, total = asked.path["topic"], asked.number("total", 0, least=1, most=2**31 - 1)
    await (await asked.admin()).create_partitions(name, total)
    return Done(address=f"/topics/{name}", message=f"Topic {name} has {total} partitions.")


async def alter_config(asked: PageRequest) -> Done:
    """Set a key of the topic's configuration, or remove it with the button `remove`."""
    name, key = asked.path["topic"], asked.form.get("key", "").strip()
    if not key:
        raise ConfigurationError("the form has no key: choose one of the topic's configuration")
    is_removed = "remove" in asked.form
    change = Alteration(
        name=key,
        operation=AlterOperation.DELETE if is_removed else AlterOperation.SET,
        value=None if is_removed else asked.form.get("value", ""),
    )
    await (await asked.admin()).alter_configs(_resource(name), [change])
    return Done(address=f"/topics/{name}", message=f"{key} is {'back to its default' if is_removed else 'changed'}.")


async def delete(asked: PageRequest) -> Done:
    """Delete a topic, whose name the form must repeat."""
    name = asked.path["topic"]
    if asked.form.get("name", "").strip() != name:
        raise ConfigurationError(f"the name that you typed is not {name}: nothing is deleted")
    if name in INTERNAL_TOPICS:
        raise ConfigurationError(
            f"{name} is internal, and the page does not delete it: use odradek topics delete --yes-internal"
        )
    await (await asked.admin()).delete_topics([name])
    return Done(address="/topics", message=f"Topic {name} is deleted.")


def _resource(name: str) -> ConfigResource:
    return ConfigResource(type=ConfigResourceType.TOPIC, name=name)


VIEW = View(
    title="Topics",
    path="/topics",
    pages=(
        Page(path="/topics", template="topics.html", data=topics, live=("rows",)),
        Page(path="/create-topic", template="topic_create.html", data=nothing, operator=True),
        Page(path="/topics/{topic}", template="topic.html", data=topic, live=("state",)),
        Page(path="/topics/{topic}/partitions", template="topic_partitions.html", data=described, operator=True),
        Page(path="/topics/{topic}/configuration", template="topic_configuration.html", data=described, operator=True),
        Page(path="/topics/{topic}/delete", template="topic_delete.html", data=described, operator=True),
    ),
    actions=(
        Action(path="/create-topic", act=create),
        Action(path="/topics/{topic}/partitions", act=add_partitions),
        Action(path="/topics/{topic}/configuration", act=alter_config),
        Action(path="/topics/{topic}/delete", act=delete),
    ),
)
