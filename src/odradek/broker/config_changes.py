"""Changing what is set for a topic or a broker, in the tree.

Any broker may: a change is read, decided and written again if somebody else wrote in between. Whoever it concerns
watches the node itself, so nothing is put into `/config/changes`, from which Kafka's brokers learned what to read.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.config import BrokerConfig, TopicConfig
from odradek.metadata import paths
from odradek.metadata.nodes import BrokenNodeError, ConfigNode
from odradek.metadata.store import BadVersion, Check, Create, NodeExists, NoNode, Operation, SetData, Store
from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass

_log = logging.getLogger("odradek.broker")
_ATTEMPTS: Final = 10
"""Somebody else wrote each time: that is no accident any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A change of one topic's configuration, or of a broker's; without a topic and a broker, of all brokers'.

    `change` gets what is set now and gives what shall be, or raises `KafkaError`. It may be called again.
    """

    topic: str | None = None
    broker_id: int | None = None
    change: Callable[[Mapping[str, str]], Mapping[str, str]]

    @property
    def path(self) -> str:
        """The node that has the configuration."""
        return paths.broker_config(self.broker_id) if self.topic is None else paths.topic_config(self.topic)


async def write_changes(store: Store, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
    """Make each change, or say why not. Raises the store's errors; those before the one that failed are made then."""
    results: list[KafkaError | None] = []
    for change in changes:
        try:
            await _write(store, change)
            results.append(None)
        except KafkaError as error:
            results.append(error)
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
                _log.warning("%s; it is written anew", error)
        after = change.change(before)
        if node is not None and after == before:
            return
        data = ConfigNode(config=after).encode()
        write: Operation = (
            Create(path=path, data=data) if node is None else SetData(path=path, data=data, version=node.version)
        )
        # A topic that is deleted meanwhile must not leave a configuration behind.
        guard: list[Operation] = [] if change.topic is None else [Check(path=paths.topic(change.topic))]
        try:
            await store.multi([*guard, write])
        except (BadVersion, NodeExists):
            continue
        except NoNode as error:
            if change.topic is not None and error.path == paths.topic(change.topic):
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {change.topic}") from None
            continue
        known = BrokerConfig.definitions().keys() | TopicConfig.definitions().keys()
        _log.info("%s is %s now", path, {name: text if name in known else "[hidden]" for name, text in after.items()})
        return
    raise KafkaError(ErrorCode.request_timed_out, f"somebody else goes on changing {path}")
