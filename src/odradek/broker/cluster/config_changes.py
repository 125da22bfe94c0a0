"""Changes the configuration of a topic, a group, a user, a client or a broker in the metadata tree, on any broker.

After a concurrent write, a change is computed again. Brokers watch the configuration nodes themselves, so nothing is
written to `/config/changes`, which Kafka's brokers watched.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from odradek.broker.turns import cooperatively
from odradek.config.definition import ConfigType
from odradek.config.dynamic import dynamic_definitions
from odradek.config.group import GroupConfig
from odradek.config.topic import TopicConfig
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import ConfigNode
from odradek.metadata.store import BadVersion, Check, Create, NodeExists, NoNode, Operation, SetData, Store
from odradek.model import ErrorCode, KafkaError
from odradek.security.quotas import IP_KEYS, USER_KEYS, QuotaEntity

_log = logging.getLogger("odradek.broker")
_ATTEMPTS: Final = 10
"""Limit of attempts to write one change despite concurrent writes."""


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A configuration change of a topic, a group, a user, a client, a broker, or of all brokers if none is given.

    `change` maps the current configuration to the new one, or raises `KafkaError`. It may be called repeatedly.
    """

    topic: str | None = None
    group: str | None = None
    user: str | None = None
    client: QuotaEntity | None = None
    broker_id: int | None = None
    change: Callable[[Mapping[str, str]], Mapping[str, str]]

    @property
    def path(self) -> str:
        """The path of the configuration's node in the tree."""
        if self.topic is not None:
            return paths.topic_config(self.topic)
        if self.user is not None:
            return paths.user_config(self.user)
        if self.client is not None:
            return paths.quota_config(self.client)
        return paths.broker_config(self.broker_id) if self.group is None else paths.group_config(self.group)


async def write_changes(store: Store, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
    """Write the changes, and return each one's error or None. If the store raises, earlier changes stay written."""
    results: list[KafkaError | None] = []
    async for change in cooperatively(changes):
        try:
            await _write(store, change)
            results.append(None)
        except KafkaError as error:
            results.append(error.with_traceback(None))
    return results


async def _write(store: Store, change: ConfigChange) -> None:
    path = change.path
    for _ in range(_ATTEMPTS):
        node = await store.get(path)
        before: Mapping[str, str] = {}
        if node is not None:
            try:
                before = ConfigNode.decode(path, node.data).config
            except BrokenNodeError as error:
                _log.warning("%s; overwriting it", error)
        after = change.change(before)
        if after == before and (node is not None or not after):
            return
        data = ConfigNode(config=after).encode()
        write: Operation = (
            Create(path=path, data=data) if node is None else SetData(path=path, data=data, version=node.version)
        )
        guard = await _missing_parents(store, path)
        if change.topic is not None:
            # A topic that is deleted concurrently must not leave a configuration behind.
            guard.append(Check(path=paths.topic(change.topic)))
        try:
            await store.multi([*guard, write])
        except (BadVersion, NodeExists):
            continue
        except NoNode as error:
            if change.topic is not None and error.path == paths.topic(change.topic):
                raise KafkaError(
                    ErrorCode.unknown_topic_or_partition, f"The topic '{change.topic}' does not exist."
                ) from None
            continue
        known = {**dynamic_definitions(), **TopicConfig.definitions(), **GroupConfig.definitions()}
        open_names = {name for name in after if name in known and known[name].type is not ConfigType.PASSWORD}
        open_names.update(USER_KEYS, IP_KEYS)
        shown = {name: after[name] if name in open_names else "[hidden]" for name in after}
        _log.info(
            "Processing override for entityPath: %s with config: %s", path.removeprefix(f"{paths.CONFIG}/"), shown
        )
        return
    raise KafkaError(ErrorCode.request_timed_out, f"{path} is changed concurrently again and again")


async def _missing_parents(store: Store, path: str) -> list[Operation]:
    """Return what creates the parents of the node of a user's client: those of other nodes exist."""
    parent = paths.parent(path)
    user = paths.parent(parent)
    if paths.parent(user) != paths.USER_CONFIGS:
        return []
    empty = ConfigNode(config={}).encode()
    return [
        Create(path=missing, data=data)
        for missing, data in ((user, empty), (parent, b""))
        if await store.get(missing) is None
    ]
