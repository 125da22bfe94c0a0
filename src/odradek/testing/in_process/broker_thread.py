"""A broker on its own thread and event loop, which a test can kill or pause without affecting other brokers.

A paused event loop stops all work of its broker, timers and session renewal included, as SIGSTOP does; the kernel
still accepts connections for it.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop
from msgspec.structs import replace

from odradek.broker.lifecycle import Broker
from odradek.config.broker import BrokerConfig
from odradek.metadata.store import Store
from odradek.runtime import Runtime
from odradek.runtime.threads import ThreadTicker
from odradek.stores import open_store
from odradek.testing.machine_clock import monotonic

T = TypeVar("T")
LIMIT_S: Final = 60.0
"""Limit of each blocking call, which then raises `TimeoutError`."""


class _MachineLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with the machine's clock, which uvloop's has anyway."""

    time = staticmethod(monotonic)


class BrokerThread:
    """One run of a broker, from `begin` to `stop` or `kill`. Its methods block, and are called from other threads.

    `prepare` is called with the broker before it starts.
    """

    def __init__(
        self, config: BrokerConfig, runtime: Runtime, metadata: str, prepare: Callable[[Broker], None]
    ) -> None:
        self.broker_id = config.broker_id
        self.is_paused = False
        self.broker: Broker
        self._config = config
        self._ticker = ThreadTicker()
        self._runtime = replace(runtime, ticker=self._ticker)
        self._metadata = metadata
        self._prepare = prepare
        self._store: Store
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._go_on = threading.Event()
        self._is_killed = False
        self._thread = threading.Thread(target=self._main, name=f"odradek-broker-{self.broker_id}", daemon=True)

    def begin(self) -> None:
        """Start the thread and return at once, so that several brokers can start at the same time."""
        self._thread.start()

    def started(self) -> BaseException | None:
        """Wait for the start; return None when the broker serves, or the error that prevents it."""
        try:
            return self._started.exception(LIMIT_S)
        except concurrent.futures.TimeoutError:
            return self._too_late("start")

    def stop(self) -> None:
        self.resume()
        self.run(self._stop(), "stop")
        self._thread.join(LIMIT_S)

    def kill(self) -> None:
        """Kill the broker as a crash does: nothing is flushed or announced, and its sockets are closed."""
        self._is_killed = True
        if self.is_paused:
            self._go_on.set()
        else:
            self._loop.call_soon_threadsafe(self._die)
        self._thread.join(LIMIT_S)

    def die_here(self, kill: Callable[[], None]) -> None:
        """Stop the loop, from which this is called, where it is, until `kill` has ended it from another thread."""
        self._go_on.clear()
        self.is_paused = self._ticker.is_paused = True
        threading.Thread(target=kill, name=f"killing broker {self.broker_id}", daemon=True).start()
        self._stand_still(concurrent.futures.Future())

    def pause(self) -> None:
        """Stop the broker's loop until `resume`; return when it stands still."""
        if self.is_paused:
            return
        self._go_on.clear()
        self._ticker.is_paused = True
        entered: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._stand_still, entered)
        self._wait(entered, "pause")
        self.is_paused = True

    def resume(self) -> None:
        """Continue the broker's loop; its clock was not paused."""
        self.is_paused = self._ticker.is_paused = False
        self._go_on.set()

    def run(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Run `work` on the broker's loop and return its result; `what` is a verb for errors."""
        return self._wait(asyncio.run_coroutine_threadsafe(work, self._loop), what)

    def call(self, work: Callable[[], None]) -> None:
        """Run `work` on the broker's loop and wait for it. If it is paused, return at once; `resume` runs `work`."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def do() -> None:
            work()
            done.set_result(None)

        self._loop.call_soon_threadsafe(do)
        if not self.is_paused:
            self._wait(done, "take part")

    def _wait(self, future: "concurrent.futures.Future[T]", what: str) -> T:
        try:
            return future.result(LIMIT_S)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            raise self._too_late(what) from None

    def _too_late(self, what: str) -> TimeoutError:
        return TimeoutError(f"broker {self.broker_id} did not {what} within {LIMIT_S:.0f} s")

    # ---- on its own thread --------------------------------------------------------------------------------------

    def _main(self) -> None:
        # uvloop's sometimes waits for ever in `close` for a TLS connection.
        has_tls = self._config.ssl_keystore_location is not None
        with asyncio.Runner(loop_factory=_MachineLoop if has_tls else uvloop.new_event_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        try:
            await self._start()
        except BaseException as error:  # the thread's outermost edge: the waiting caller gets the error
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._ended  # the runner cancels the remaining tasks of a killed broker

    async def _start(self) -> None:
        timeout_ms = self._config.zookeeper_session_timeout_ms
        self._store = open_store(self._metadata, self._runtime, session_timeout_ms=timeout_ms, zookeeper=self._config)
        try:
            self.broker = Broker(self._config, self._runtime, self._store, note="a Cluster's broker")
            self._prepare(self.broker)
            await self.broker.start()
        except BaseException:
            await self._store.close()
            raise

    async def _stop(self) -> None:
        try:
            await self.broker.stop()
            await self._store.close()
        finally:
            self._ended.set_result(None)

    def _die(self) -> None:
        self.broker.kill()
        self._store.abandon()
        if not self._ended.done():
            self._ended.set_result(None)

    def _stand_still(self, entered: "concurrent.futures.Future[None]") -> None:
        entered.set_result(None)
        self._go_on.wait()
        if self._is_killed:
            self._die()
