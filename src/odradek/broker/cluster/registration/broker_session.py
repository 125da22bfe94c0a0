"""A broker's session with the metadata tree: keeps the broker registered, and creates the tree's fixed nodes.

A lost session ends the registration and closes the fence, and so does the removal of the registration.
The metadata loop calls `renew` before it reads the tree.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.broker.cluster.registration.fencing import Fence
from odradek.broker.cluster.registration.registration import Endpoints, Prepare, Registration, in_live_session
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.nodes import ClusterIdNode, ClusterSecretNode, encode_topic_id
from odradek.metadata.store import NodeExists, Store, StoreError, Watch
from odradek.model import StorageError, UnavailableError
from odradek.runtime import Clock, Entropy, new_id

_RETREAT_S: Final = 1.0
"""The time for others to elect a controller and leaders before a broker that they take for dead registers again."""
_ANSWER_S: Final = 2.0
"""The time that a broker that stops waits for the tree, which may be cut off; answers take milliseconds."""
_SECRET_BYTES: Final = 32
_log = logging.getLogger("odradek.broker")


async def prepare_tree(store: Store, entropy: Entropy, *, cluster_id: str | None = None) -> str:
    """Create the tree's missing fixed nodes, and return the cluster id.

    A new cluster gets `cluster_id`, or a random one.
    """
    return await in_live_session(lambda: _prepare_tree(store, entropy, cluster_id))


async def _prepare_tree(store: Store, entropy: Entropy, cluster_id: str | None) -> str:
    found = await store.get_many(paths.PERSISTENT_ROOTS)
    for path, node in zip(paths.PERSISTENT_ROOTS, found, strict=True):
        if node is None:
            with suppress(NodeExists):
                await store.create(path)
    # A cluster that has an id but no secret began with an earlier release, whose brokers send no proofs.
    is_new = await store.get(paths.CLUSTER_ID) is None
    secret = ClusterSecretNode(secret=entropy.randbytes(_SECRET_BYTES), requires_proofs=is_new)
    await _get_or_create(store, paths.CLUSTER_SECRET, secret.encode())
    new = ClusterIdNode(cluster_id=cluster_id or encode_topic_id(new_id(entropy)))
    data = await _get_or_create(store, paths.CLUSTER_ID, new.encode())
    return ClusterIdNode.decode(paths.CLUSTER_ID, data).cluster_id


async def _get_or_create(store: Store, path: str, data: bytes) -> bytes:
    """Return the data of a node that never changes; of several brokers that create it, the first decides."""
    while (node := await store.get(path)) is None:
        with suppress(NodeExists):
            await store.create(path, data)
    return node.data


async def read_cluster_secret(store: Store) -> ClusterSecretNode:
    """Return the secret of a prepared tree; warn if clients can forge requests of brokers."""
    node = await in_live_session(lambda: store.get(paths.CLUSTER_SECRET))
    if node is None:
        raise StorageError(f"{paths.CLUSTER_SECRET} was deleted while the broker started: start it again")
    secret = ClusterSecretNode.decode(paths.CLUSTER_SECRET, node.data)
    if not secret.requires_proofs:
        _log.warning(
            "Clients can forge requests of brokers in this cluster, which began with an earlier release: when every "
            "broker has this release, run odradek metadata require-proofs and restart the brokers one by one"
        )
    return secret


class BrokerSession:
    """One broker's session. `wake` is called when the broker may have to register again."""

    def __init__(
        self,
        store: Store,
        broker_id: int,
        endpoints: Endpoints,
        config: BrokerConfig,
        clock: Clock,
        *,
        fence: Fence,
        wake: Callable[[], None],
    ) -> None:
        self.epoch = -1
        """The broker epoch of the present registration; every registration has a higher one."""
        self._fence = fence
        self._store = store
        self._path = paths.broker(broker_id)
        self._session_timeout_ms = config.zookeeper_session_timeout_ms
        self._registration = Registration(store, broker_id, endpoints, config, clock)
        self._wake = wake
        self.session = 0
        """The session id of the registration; after a lost session it differs from the store's."""
        self._may_have_expired = True
        self._watch: Watch | None = None

    async def join(self, *, prepare: Prepare) -> None:
        """Await `prepare` and register. Raises `ConfigurationError` if another broker has this id."""
        self._store.on_session_lost(self._notice_lost_session)
        await self._registration.register_first(self._session_timeout_ms, prepare=prepare)
        self._watch = self._store.watch_data(self._path, self._notice_change)

    async def renew(self) -> bool:
        """Register again if necessary. Return whether the session is new, so that the whole tree may have changed."""
        lost = self._has_lost_session
        if lost:
            self._fence.close()
        if lost or self._may_have_expired:
            self._may_have_expired = False
            try:
                node = await self._store.get(self._path)
                if node is None and not lost:
                    _log.warning(
                        "The registration was removed, probably by a broker whose connections this one refused: it "
                        "registers again in %g s",
                        _RETREAT_S,
                    )
                    self._fence.close()
                    await asyncio.sleep(_RETREAT_S)
                node = None
                while node is None:
                    await self._registration.register()
                    node = await self._store.get(self._path)
            except BaseException:
                self._may_have_expired = True
                raise
            # The session may have ended meanwhile.
            lost, self.epoch, self.session = node.owner != self.session, node.created, node.owner
        return lost

    async def is_reachable(self) -> bool:
        """Return whether the fence is open and the tree answers within `_ANSWER_S`."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return not self._fence.is_closed and await self._store.get(self._path) is not None
        except (StoreError, UnavailableError, StorageError, TimeoutError):
            return False

    async def leave(self) -> None:
        """Delete this session's controller and broker nodes, so that others react at once. A failure is logged."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                for path in (paths.CONTROLLER, self._path):
                    node = await self._store.get(path)
                    if node is not None and node.owner == self._store.session_id:
                        await self._store.delete(path, node.version)
        except (StoreError, UnavailableError, StorageError, TimeoutError) as error:
            reason = str(error) or "the metadata tree does not answer"
            _log.warning("Failed to delete the registration; it expires with the session: %s", reason)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def _notice_change(self) -> None:
        self._may_have_expired = True
        self._wake()

    @property
    def _has_lost_session(self) -> bool:
        return self.session != self._store.session_id

    def _notice_lost_session(self) -> None:
        if self._has_lost_session:  # otherwise `renew` has already registered in the new session
            self._fence.close()
            self._wake()
