"""The views of topics: a list, one topic with its partitions and configuration; create, alter, delete."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients import Admin
from odradek.clients.admin.descriptions import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    TopicDescription,
)
from odradek.clients.metadata import PartitionMetadata
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ConfigurationError, OdradekError, TopicPartition, validate_topic_name
from odradek.model.names import INTERNAL_TOPICS
from odradek.page.lists import Listing, listing
from odradek.page.overview import (
    Offsets,
    TopicRow,
    counted,
    overview,
    read_groups,
    read_log_dirs,
    read_offsets,
    sizes_of,
    slow_s,
)
from odradek.page.view import Action, Done, Page, PageRequest, View

_MOST_COUNTED: Final = 2_000
"""Limit of the partitions of a list whose messages are counted."""
_MOST_GROUPS: Final = 100
"""Limit of the groups that are looked at for those that read a topic."""
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "the broker, at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, at run time",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's file",
    ConfigSource.DEFAULT_CONFIG: "Kafka's default",
}


class PartitionRow(Struct, frozen=True, kw_only=True):
    """A partition of a topic; the size is None where it is unknown."""

    number: int
    partition: PartitionMetadata
    offsets: Offsets
    size_bytes: int | None


class ConfigRow(Struct, frozen=True, kw_only=True):
    """A key of the topic's configuration, and where its value is set."""

    entry: ConfigEntry
    is_default: bool
    source: str


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group that reads a topic or has committed offsets of it; members and lag are those of this topic."""

    group_id: str
    state: str
    members: int
    lag: int | None


async def topics(asked: PageRequest) -> Listing[TopicRow]:
    """Return the topics that the address asks for; internal ones with `internal=1`.

    Messages are counted in the topics of the page only, unless it is sorted by them.
    """
    internal = bool(asked.query.get("internal"))
    rows: Sequence[TopicRow] = [row for row in (await overview(asked)).topics if internal or not row.is_internal]
    is_by_count = asked.query.get("sort", "").removeprefix("-") in ("messages", "written")
    keys = {
        "name": lambda row: row.name,
        "partitions": lambda row: row.partitions,
        "replicas": lambda row: row.replication_factor,
        "sync": lambda row: row.out_of_sync,
        "size": lambda row: row.size_bytes,
        "messages": lambda row: row.messages,
        "written": lambda row: row.written_ms,
    }
    if is_by_count:
        rows = await _counted(asked, rows)
    shown = listing(asked, rows, keys, text=lambda row: row.name, default="name")
    return shown if is_by_count else replace(shown, rows=await _counted(asked, shown.rows))


async def _counted(asked: PageRequest, rows: Sequence[TopicRow]) -> list[TopicRow]:
    """Return rows with messages and last write, except of topics with which the partitions would be too many."""
    known = {each.name: each for each in (await overview(asked)).state.topics}
    left, wanted = _MOST_COUNTED, []
    for row in rows:
        if row.partitions <= left and row.name in known:
            wanted.append(known[row.name])
            left -= row.partitions
    offsets = await read_offsets(asked, wanted, slow_s(asked))
    counts = {each.name: counted(offsets, each) for each in wanted}
    return [replace(row, messages=m, written_ms=w) for row in rows for m, w in [counts.get(row.name, (None, None))]]


async def topic(asked: PageRequest) -> Mapping[str, Any]:
    """Return one topic with its partitions. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
    admin, name = await asked.admin(), asked.path["topic"]
    found = (await admin.describe_topics([name]))[name]
    online = {broker for each in found.partitions.values() for broker in {*each.replicas} - {*each.offline_replicas}}
    partitions = [TopicPartition(name, number) for number in found.partitions]
    offsets, log_dirs, configs, (groups, other_groups) = await asyncio.gather(
        read_offsets(asked, [found], asked.settings.interval_s),
        read_log_dirs(asked, sorted(online), asked.settings.interval_s, partitions),
        _configs(admin, name),
        _groups(asked, name),
    )
    sizes = sizes_of(log_dirs)
    rows = [
        PartitionRow(
            number=key.partition,
            partition=found.partitions[key.partition],
            offsets=offsets[key],
            size_bytes=None if sizes is None else sizes.get(key, 0),
        )
        for key in partitions
    ]
    keys = {
        "name": lambda row: row.number,
        "end": lambda row: row.offsets.end,
        "size": lambda row: row.size_bytes,
        "leader": lambda row: row.partition.leader,
    }
    messages, written_ms = counted(offsets, found)
    return {
        "topic": found,
        "partitions": listing(asked, rows, keys, text=lambda row: str(row.number), default="name"),
        "messages": messages,
        "written_ms": written_ms,
        "size_bytes": None if sizes is None else sum(row.size_bytes or 0 for row in rows),
        "groups": groups,
        "other_groups": other_groups,
        "configs": configs,
    }


async def _groups(asked: PageRequest, topic: str) -> tuple[list[GroupRow] | None, int]:
    """Return the groups that read a topic or have offsets of it, and how many groups were not looked at."""
    listed = await asked.known("groups", Admin.list_groups)
    if listed is None:
        return None, 0
    chosen = [each.group_id for each in listed][:_MOST_GROUPS]
    found = await asked.known("groups of topics", partial(read_groups, group_ids=chosen), slow_s(asked))
    if found is None:
        return None, 0
    rows = []
    for group in found:
        if partitions := [each for each in group.partitions if each.topic == topic]:
            lags = [each.lag for each in partitions if each.lag is not None]
            members = len({each.member_id for each in partitions} - {None})
            lag = sum(lags) if lags else None
            rows.append(GroupRow(group_id=group.group_id, state=group.group_state, members=members, lag=lag))
    return sorted(rows, key=lambda row: (-(row.lag or 0), row.group_id)), len(listed) - len(chosen)


async def _configs(admin: Admin, name: str, *, with_texts: bool = False) -> list[ConfigRow]:
    """Return the keys of a topic's configuration, those that differ from the default first; none if it is refused."""
    try:
        (entries,) = (await admin.describe_configs([_resource(name)], include_documentation=with_texts)).values()
    except OdradekError:
        return []
    rows = [
        ConfigRow(
            entry=each,
            is_default=each.source is ConfigSource.DEFAULT_CONFIG,
            source=_SOURCES.get(each.source, each.source.name.lower()),
        )
        for each in entries
    ]
    order = list(_SOURCES.values())
    return sorted(rows, key=lambda row: (order.index(row.source) if row.source in order else -1, row.entry.name))


# ---- changes ----------------------------------------------------------------------------------------------------


async def nothing(_asked: PageRequest) -> None: ...


async def described(asked: PageRequest) -> TopicDescription:
    """Return the topic of a form. Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION."""
    name = asked.path["topic"]
    return (await (await asked.admin()).describe_topics([name]))[name]


async def configuration(asked: PageRequest) -> Mapping[str, Any]:
    """Return a topic's configuration, and the key that the form or its address names."""
    name = (await described(asked)).name
    rows = await _configs(await asked.admin(), name, with_texts=True)
    key = asked.form.get("key") or asked.query.get("key", "")
    return {"name": name, "key": key, "rows": rows, "row": next((row for row in rows if row.entry.name == key), None)}


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
        Page(
            path="/topics/{topic}/configuration", template="topic_configuration.html", data=configuration, operator=True
        ),
        Page(path="/topics/{topic}/delete", template="topic_delete.html", data=described, operator=True),
    ),
    actions=(
        Action(path="/create-topic", act=create),
        Action(path="/topics/{topic}/partitions", act=add_partitions),
        Action(path="/topics/{topic}/configuration", act=alter_config),
        Action(path="/topics/{topic}/delete", act=delete),
    ),
)
