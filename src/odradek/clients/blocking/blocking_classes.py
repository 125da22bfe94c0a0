"""Makes the blocking client classes from the asynchronous ones."""

import asyncio
import collections.abc
import concurrent.futures
import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from types import TracebackType
from typing import Any, Final, Self, get_args, get_origin

from odradek.clients.blocking.loop_thread import LoopThread, in_callers_thread, loop_thread

_PACKAGE: Final = "odradek.clients"
_WORDS: Final = (("async with", "with"), ("async for", "for"), ("await ", ""))


class BlockingClient:
    """Runs the methods of an asynchronous client on the loop of `loop_thread`, and waits for their results."""

    _asynchronous: type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        thread = loop_thread()
        self._attach(thread.run(partial(self._asynchronous, *args, **kwargs)), thread)

    def _attach(self, client: Any, thread: LoopThread) -> None:
        self._thread, self._client = thread, client

    @classmethod
    def of(cls, client: object, thread: LoopThread) -> Self:
        """Return a blocking client for an existing asynchronous one."""
        made = cls.__new__(cls)
        made._attach(client, thread)
        return made

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.__aexit__, kind, error, traceback)
        finally:
            self._thread.on_exit(id(self._client), None)

    def start(self) -> Self:
        """Connect to the cluster; `with` calls this."""
        # At the interpreter's exit, a producer flushes and a consumer leaves its group.
        self._thread.on_exit(id(self._client), partial(self._on_loop, self._client.__aexit__, None, None, None))
        self._run(self._client.start)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._run(getattr, self._client, name)

    def _run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._thread.run(partial(self._on_loop, work, *args, **kwargs))

    def _on_loop(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"


class BlockingBlock(BlockingClient):
    """A blocking `with` block of an asynchronous one that is no client, such as a transaction."""

    def __enter__(self) -> Any:
        return self._run(self._client.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._client.__aexit__, kind, error, traceback)


class IteratingBlockingClient(BlockingClient):
    """A blocking client that is an iterator.

    A call to the loop costs ten times as much as a record, so `__next__` gets several records at once, by the client's
    `_take_run`. Before the next call of any method, the client's `_returned` gets the number of records that the
    application took.
    """

    def _attach(self, client: Any, thread: LoopThread) -> None:
        super()._attach(client, thread)
        self._run_left: deque[Any] = deque()
        self._run_count = 0
        """The number of records that `_take_run` returned; only the loop's thread changes it."""
        self._one_at_a_time = asyncio.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return self._run_left.popleft()
            except IndexError:
                pass
            try:
                self._run(self._begin_run)
            except StopAsyncIteration:
                raise StopIteration from None

    async def _begin_run(self) -> None:
        async with self._one_at_a_time:
            if not self._run_left:  # another thread may have begun a run
                self._end_run()
                records = await self._client._take_run()
                self._run_left, self._run_count = deque(records), len(records)

    def _end_run(self) -> None:
        left = 0
        with contextlib.suppress(IndexError):  # another thread may take records at the same time
            while True:
                self._run_left.pop()
                left += 1
        returned, self._run_count = self._run_count - left, 0
        self._client._returned(returned)

    def _on_loop(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._run_count and work != self._begin_run:
            self._end_run()
        return super()._on_loop(work, *args, **kwargs)


@cache
def blocking_class(asynchronous: type) -> type[BlockingClient]:
    """Return the blocking class of an asynchronous one, with its public methods, their signatures and docstrings."""
    members: dict[str, Any] = {
        "__doc__": _blocking_words(asynchronous.__doc__),
        "__module__": "odradek.clients.blocking",
        "__signature__": inspect.signature(asynchronous),
        "_asynchronous": asynchronous,
    }
    for name, member in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_") and name != "start":
            members[name] = _iterating(name, member) if inspect.isasyncgenfunction(member) else _blocking(name, member)
    for name, member in inspect.getmembers(asynchronous, lambda each: isinstance(each, property)):
        members[name] = property(partial(_read, name), doc=member.__doc__)
    base = IteratingBlockingClient if hasattr(asynchronous, "__anext__") else BlockingClient
    if hasattr(asynchronous, "__aenter__") and not hasattr(asynchronous, "start"):
        base = BlockingBlock
    return type(asynchronous.__name__, (base,), members)


def _read(name: str, client: BlockingClient) -> Any:
    return client._run(getattr, client._client, name)


def _blocking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    callbacks = _callback_parameters(function)

    @wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for key in sorted(callbacks & kwargs.keys()):
            if kwargs[key] is not None:
                kwargs[key] = in_callers_thread(kwargs[key])
        try:
            result = self._run(getattr(self._client, name), *args, **kwargs)
        finally:
            if name == "close":
                self._thread.on_exit(id(self._client), None)
        return _converted(self, result)

    return _documented(method, function)


def _iterating(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        items = self._run(getattr(self._client, name), *args, **kwargs)
        self._thread.on_exit(id(items), items.aclose)
        try:
            while True:
                try:
                    item = self._thread.run(partial(_step, items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self._thread.is_usable:  # otherwise the loop has closed the iterator when it ended
                self._thread.on_exit(id(items), None)
                self._thread.run(items.aclose)

    return _documented(method, function)


async def _step(items: Any) -> Any:
    return await anext(items)


def _converted(client: BlockingClient, result: Any) -> Any:
    """Convert asyncio's futures and objects with coroutine methods for the caller's thread; return others unchanged."""
    if isinstance(result, asyncio.Future):
        return _thread_future(result)
    if isinstance(result, list) and result and isinstance(result[0], tuple) and any(map(asyncio.isfuture, result[0])):
        return [type(each)(*(_converted(client, value) for value in each)) for each in result]
    if isinstance(result, list) and result and _converted(client, result[0]) is not result[0]:
        return [_converted(client, each) for each in result]
    if isinstance(result, dict):
        return {key: _converted(client, value) if isinstance(value, list) else value for key, value in result.items()}
    if result is client._client:
        return client
    kind: Any = type(result)
    return blocking_class(kind).of(result, client._thread) if _has_coroutines(kind) else result


@cache
def _has_coroutines(kind: Any) -> bool:
    return kind.__module__.startswith(_PACKAGE) and any(map(inspect.iscoroutinefunction, vars(kind).values()))


def _thread_future(future: "asyncio.Future[Any]") -> "concurrent.futures.Future[Any]":
    made: concurrent.futures.Future[Any] = concurrent.futures.Future()
    made.set_running_or_notify_cancel()  # what has been sent cannot be cancelled

    def done(future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            made.set_exception(concurrent.futures.CancelledError())
        elif (error := future.exception()) is not None:
            made.set_exception(error)
        else:
            made.set_result(future.result())

    future.get_loop().call_soon_threadsafe(future.add_done_callback, done)
    return made


def _callback_parameters(function: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    return frozenset(each.name for each in parameters if _may_await(each.annotation))


def _may_await(annotation: Any) -> bool:
    if get_origin(annotation) is collections.abc.Callable:
        returned = get_args(annotation)[-1]
        return any(get_origin(each) is collections.abc.Awaitable for each in (returned, *get_args(returned)))
    return any(map(_may_await, get_args(annotation)))


def _documented(method: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    method.__doc__ = _blocking_words(function.__doc__)
    return method


def _blocking_words(text: str | None) -> str | None:
    for asynchronous, blocking in _WORDS:
        text = text and text.replace(asynchronous, blocking)
    return text


__all__ = ["BlockingClient", "blocking_class"]
