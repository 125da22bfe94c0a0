"""Metadata loops without a broker around them, with a port that receives the controller's commands."""

import asyncio
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from odradek.broker.cluster.metadata.metadata_loop import MetadataLoop
from odradek.broker.controller.controller import Controller
from odradek.broker.counters import BrokerCounters
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.security.admission import Admission
from odradek.broker.security.context import Session
from odradek.broker.security.quotas.client_quotas import ClientQuotas
from odradek.broker.security.request_proofs import RequestProofs
from odradek.broker.serving.dispatch import Dispatcher
from odradek.broker.serving.responses import with_throttle_time
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, TopicPartition
from odradek.runtime import Listener, Runtime
from odradek.security import ALLOW_ALL
from odradek.wire.buffers import BufferPool
from odradek.wire.connection import Connection
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits


class NoReplicas:
    """A broker's replicas, of which there are none; what is to be stopped is noted."""

    def __init__(self) -> None:
        self.stopped: list[tuple[TopicPartition, bool]] = []
        self.synced = 0
        self.errors: dict[TopicPartition, ErrorCode] = {}

    async def sync_deleted(self) -> None:
        self.synced = len(self.stopped)

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        self.stopped.append((topic_partition, delete))

    def replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        return self.errors.get(topic_partition, ErrorCode.none)

    async def wait_until_applied(self) -> None:
        await asyncio.sleep(0)


class CommandListener:
    """A listener, and the handlers behind it, for one metadata loop. `received` has the requests' API keys."""

    def __init__(self, runtime: Runtime, address: ListenerAddress, config: BrokerConfig) -> None:
        self.received: list[int] = []
        self.refuses_connections = False
        self._runtime = runtime
        self._address = address
        self._broker: Any = SimpleNamespace(metadata_loop=None)
        self._admission = Admission(ALLOW_ALL)
        self._dispatcher = Dispatcher(
            self._broker,
            MetadataCache(config),
            BrokerCounters(),
            self._admission,
            ClientQuotas(config, runtime.clock, with_throttle_time),
            runtime.worker,
            RequestProofs(ClusterImage, ""),
            is_own_command=lambda body: self._broker.metadata_loop.command_handler.is_addressed_here(body),
        )
        self._dispatcher.serve_clients()
        self._group = ConnectionGroup(limits=ConnectionLimits(idle_ms=0), pool=BufferPool())
        self._connections: set[Connection] = set()
        self._listener: Listener | None = None

    async def open(self, loop: MetadataLoop[Controller]) -> None:
        self._broker.metadata_loop = loop
        # A loop at the address of another one receives no commands.
        with suppress(OSError):
            self._listener = await self._runtime.network.listen(
                lambda: Connection(self, self._group), self._address.host, self._address.port
            )

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self.abort_connections()
        self._dispatcher.kill()

    def abort_connections(self) -> None:
        for connection in tuple(self._connections):
            connection.abort()

    # As `wire.Service`

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Any:
        self.received.append(int.from_bytes(frame[:2], "big"))
        return self._dispatcher.serve(connection, frame, alone=alone)

    def opened(self, connection: Connection) -> bool:
        if self.refuses_connections:
            return False
        self._connections.add(connection)
        connection.session = Session(connection=connection, listener="", client_host="", admission=self._admission)
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)


CONTROLLER_APIS = frozenset(
    {"alter_partitions", "create_partitions", "create_topics", "delete_topics", "do", "shut_down"}
)


class ListeningMetadataLoop(MetadataLoop[Controller]):
    """A metadata loop that receives commands, from its start to its end, and has the controller's API."""

    def __init__(
        self,
        store: Any,
        broker_id: int,
        address: ListenerAddress,
        config: BrokerConfig,
        runtime: Runtime,
        **more: Any,
    ) -> None:
        self.replicas = more.setdefault("replicas", NoReplicas())
        self.listener = CommandListener(runtime, address, config)
        self.store = store
        self.counters = BrokerCounters()
        more["new_controller"] = partial(Controller, replicas=self.replicas, runtime=runtime, counters=self.counters)
        super().__init__(store, broker_id, lambda: [address], config, runtime, **more)

    def __getattr__(self, name: str) -> Any:
        if name not in CONTROLLER_APIS:
            raise AttributeError(name)

        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await getattr(self.controller(), name)(*arguments, **keywords)

        return call

    async def start(self, **options: Any) -> None:
        await self.listener.open(self)
        try:
            await super().start(**options)
        except BaseException:
            self.listener.close()
            raise

    async def stop(self) -> None:
        await super().stop()
        self.listener.close()

    def kill(self) -> None:
        super().kill()
        self.listener.close()
