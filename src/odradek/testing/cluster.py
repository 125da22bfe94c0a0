"""Brokers in this process, for tests with any Kafka client: `with Cluster() as cluster: …cluster.bootstrap_servers…`.

The brokers run on an event loop of their own, in a thread, so that blocking clients work in the test's thread. They
listen on loopback ports and write to a real disk, in a temporary directory unless told otherwise, with the metadata
beside it. Every call here blocks until it is done; `async with` keeps the caller's loop free meanwhile.
"""

import asyncio
import concurrent.futures
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from odradek.broker.lifecycle import Broker
from odradek.config import BrokerConfig
from odradek.metadata.store import Store
from odradek.model import ConfigurationError
from odradek.runtime import system_runtime
from odradek.stores import open_store

T = TypeVar("T")

_QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""Where Kafka's defaults are for production: tests should not wait 3 s for a first member, nor open 50 logs."""

_PATIENCE_S: Final = 60.0


class Cluster:
    """Brokers 0 to `brokers` - 1. `config` has Kafka's keys and goes to each of them; `data_dir` keeps what they have.

    Raises `ConfigurationError` for a key that does not exist, and for more than one broker: this release has no
    replication.
    """

    def __init__(
        self, brokers: int = 1, *, config: Mapping[str, str] | None = None, data_dir: str | Path | None = None
    ) -> None:
        if brokers != 1:
            raise ConfigurationError(f"a cluster has one broker in this release, not {brokers}")
        self._ids = range(brokers)
        self._config = {**_QUICK, **(config or {})}
        self._given_dir = data_dir
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._brokers: dict[int, tuple[Broker, Store]] = {}
        self._addresses: dict[int, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of every broker, by id, with commas between; the same before and after a `restart`."""
        return ",".join(self._addresses[broker_id] for broker_id in self._ids)

    def start(self) -> None:
        """Start every broker; return when all of them serve. `with` calls it."""
        assert self._thread is None, "the cluster runs already"
        if self._given_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
        self._loop = uvloop.new_event_loop()
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._run_loop, name="odradek-cluster", daemon=True)
        self._thread.start()
        try:
            for broker_id in self._ids:
                self._run(self._start_broker(broker_id))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every broker cleanly, and remove the temporary directory. `with` calls it."""
        if self._thread is None:
            return
        try:
            for broker_id in list(self._brokers):
                self._run(self._stop_broker(broker_id))
        finally:
            self._loop.call_soon_threadsafe(self._ended.set_result, None)
            self._thread.join(_PATIENCE_S)
            self._thread = None
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = None

    def kill(self, broker_id: int) -> None:
        """End one broker as a crash does: nothing is flushed, its sockets are reset."""
        self._run(self._kill_broker(broker_id))

    def restart(self, broker_id: int) -> None:
        """Start a broker again, on its port and over its data; one that runs is stopped cleanly first."""
        if broker_id in self._brokers:
            self._run(self._stop_broker(broker_id))
        self._run(self._start_broker(broker_id))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    async def _start_broker(self, broker_id: int) -> None:
        folder = self._given_dir if self._temporary is None else self._temporary.name
        address = self._addresses.get(broker_id, "127.0.0.1:0")
        keys = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{address}",
            "log.dirs": f"{folder}/broker-{broker_id}",
        }
        config, runtime = BrokerConfig.parse({**self._config, **keys}), system_runtime()
        store = open_store(f"sqlite:///{folder}/metadata.sqlite", runtime)
        try:
            broker = Broker(config, runtime, store, note="a Cluster's broker")
            await broker.start()
        except BaseException:
            await store.close()
            raise
        self._brokers[broker_id] = broker, store
        self._addresses[broker_id] = f"{broker.endpoint.host}:{broker.endpoint.port}"

    async def _stop_broker(self, broker_id: int) -> None:
        broker, store = self._brokers.pop(broker_id)
        await broker.stop()
        await store.close()

    async def _kill_broker(self, broker_id: int) -> None:
        broker, store = self._brokers.pop(broker_id)
        broker.kill()
        await store.close()  # its session would end by itself when its process died

    def _run_loop(self) -> None:
        """What the thread does. The runner cancels what a killed broker left behind."""

        async def wait() -> None:
            await self._ended

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(wait())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(_PATIENCE_S)
