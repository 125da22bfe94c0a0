"""Watches of the nodes below `/config`: of brokers, groups, users, clients and IP addresses."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from odradek.metadata import paths
from odradek.metadata.reading import BrokenNodes, read_configs
from odradek.metadata.store import NoNode, Store, Watch
from odradek.security.quotas import QuotaEntity, only_quotas

K = TypeVar("K")
Configs = Mapping[str, str]
_USERS_AT_ONCE: Final = 100
"""For how many users the nodes of their clients are read together."""


class ConfigNodes(Generic[K]):
    """The configurations in the children of the node `root`, such as those of all brokers.

    `key` converts a child's name, or returns None to ignore it. `mark` is called when a configuration changes.
    """

    def __init__(
        self, store: Store, root: str, key: Callable[[str], K | None], broken: BrokenNodes, mark: Callable[[], None]
    ) -> None:
        self.has_changed = True
        self._store = store
        self._root = root
        self._key = key
        self._broken = broken
        self._mark = mark
        self._parent: Watch | None = None
        self._watches: dict[str, Watch] = {}
        self.known: Mapping[K, Mapping[str, str]] = {}
        """The last result of `read`."""

    @property
    def names(self) -> Collection[str]:
        """The names of the children that were read last, also of those without a configuration."""
        return self._watches.keys()

    def start(self) -> None:
        self._parent = self._store.watch_children(self._root, self._notice)

    def stop(self) -> None:
        for watch in (self._parent, *self._watches.values()):
            if watch is not None:
                watch.cancel()
        self._parent = None
        self._watches.clear()

    def mark_changed(self) -> None:
        """Make the owner read again."""
        self.has_changed = True

    def _notice(self) -> None:
        self.mark_changed()
        self._mark()

    async def read(self) -> Mapping[K, Mapping[str, str]]:
        """Return the non-empty configurations; a broken node keeps its last valid one."""
        self.has_changed = False
        try:
            names = await self._store.children(self._root)
        except NoNode:
            names = []
        keys = {name: key for name in names if (key := self._key(name)) is not None}
        for name in sorted(keys.keys() - self._watches.keys()):
            self._watches[name] = self._store.watch_data(f"{self._root}/{name}", self._notice)
        for name in sorted(self._watches.keys() - keys.keys()):
            self._watches.pop(name).cancel()
        where = {keys[name]: f"{self._root}/{name}" for name in sorted(keys)}
        self.known = await read_configs(self._store, where, self._broken, self.known)
        return self.known


class QuotaNodes:
    """The configurations of users, of users' clients, of clients and of IP addresses, which have quotas.

    Each user's node may have a child `clients`, whose children are watched, too.
    """

    def __init__(self, store: Store, broken: BrokenNodes, mark: Callable[[], None]) -> None:
        def nodes(root: str, key: Callable[[str], QuotaEntity | None]) -> ConfigNodes[QuotaEntity]:
            return ConfigNodes(store, root, key, broken, mark)

        self._nodes = nodes
        self._users = nodes(paths.USER_CONFIGS, paths.user_entity)
        self._roots = (
            self._users,
            nodes(paths.CLIENT_CONFIGS, paths.client_entity),
            nodes(paths.IP_CONFIGS, paths.ip_entity),
        )
        self._clients: dict[str, ConfigNodes[QuotaEntity]] = {}
        """The clients of each user, by the name of the user's node."""

    @property
    def has_changed(self) -> bool:
        """Whether `read` would read anything."""
        return any(each.has_changed for each in (*self._roots, *self._clients.values()))

    def mark_changed(self) -> None:
        """Make the owner read everything again."""
        for nodes in (*self._roots, *self._clients.values()):
            nodes.mark_changed()

    def start(self) -> None:
        for nodes in self._roots:
            nodes.start()

    def stop(self) -> None:
        for nodes in (*self._roots, *self._clients.values()):
            nodes.stop()
        self._clients.clear()

    async def read(self) -> tuple[Mapping[str, Configs], Mapping[QuotaEntity, Configs]]:
        """Return the configurations of users by name, and those of all entities that have quotas."""
        await asyncio.gather(*(nodes.read() for nodes in self._roots if nodes.has_changed))
        for name in sorted(self._users.names - self._clients.keys()):
            self._clients[name] = self._nodes(paths.user_clients(name), partial(paths.user_client_entity, name))
            self._clients[name].start()
        for name in sorted(self._clients.keys() - self._users.names):
            self._clients.pop(name).stop()
        changed = [each for each in self._clients.values() if each.has_changed]
        for start in range(0, len(changed), _USERS_AT_ONCE):
            await asyncio.gather(*(each.read() for each in changed[start : start + _USERS_AT_ONCE]))
        users = {entity.user: config for entity, config in self._users.known.items() if entity.user}
        found = [pair for each in (*self._roots, *self._clients.values()) for pair in each.known.items()]
        return users, {entity: config for entity, config in found if only_quotas(entity, config)}
