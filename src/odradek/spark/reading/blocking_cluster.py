"""A Kafka cluster behind blocking calls, for Spark's threads."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.clients.blocking.loop_thread import loop_thread
from odradek.clients.cluster import Cluster
from odradek.clients.settings import ClientSettings
from odradek.model import UnavailableError, address_text
from odradek.runtime import system_runtime
from odradek.spark.session import run_interruptible

T = TypeVar("T")


class BlockingCluster:
    """A `Cluster` behind blocking calls, opened by the first call; for one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._cluster: Cluster | None = None

    def run(self, work: Callable[[Cluster], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """Return the result of `work(cluster)`.

        Raise `UnavailableError` if no broker answers or after `timeout_s`, and `KeyboardInterrupt` for a signal inside
        of `deferred_interrupts`.
        """
        try:
            return run_interruptible(lambda: asyncio.wait_for(self._run(work), timeout_s))
        except TimeoutError:
            servers = ",".join(self._settings.bootstrap_servers)
            raise UnavailableError(f"no answer from {servers} within {timeout_s} s") from None

    def brokers(self) -> tuple[str, ...]:
        """Return HOST:PORT of the brokers in the last metadata; empty before the first call."""
        nodes = () if self._cluster is None else self._cluster.metadata.nodes.values()
        return tuple(sorted(address_text(node.host, node.port) for node in nodes))

    def topic_ids(self) -> dict[str, uuid.UUID]:
        topics = () if self._cluster is None else self._cluster.metadata.topics.values()
        return {each.name: each.topic_id for each in topics if each.topic_id is not None}

    def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            loop_thread().on_exit(id(cluster), None)
            loop_thread().run(cluster.close)

    async def _run(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        if self._cluster is None:
            cluster = Cluster(self._settings, system_runtime())
            try:
                await cluster.start()
            except BaseException:
                await cluster.close()
                raise
            self._cluster = cluster
            loop_thread().on_exit(id(cluster), cluster.close)
        return await work(self._cluster)
