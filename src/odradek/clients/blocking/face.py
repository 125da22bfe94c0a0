"""Blocking classes made from asynchronous ones, by one rule for all clients."""

import asyncio
import collections.abc
import concurrent.futures
import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from types import TracebackType
from typing import Any, Final, Self, get_args, get_origin

from odradek.clients.blocking.loop_thread import LoopThread, in_callers_thread, loop_thread

_PACKAGE: Final = "odradek.clients"
_WORDS: Final = (("async with", "with"), ("async for", "for"), ("await ", ""))


class Face:
    """A blocking client: its methods run on the loop of `loop_thread`, and return when they are done there."""

    _asynchronous: type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._thread = loop_thread()
        self._client = self._thread.run(partial(self._asynchronous, *args, **kwargs))

    @classmethod
    def of(cls, client: object, thread: LoopThread) -> Self:
        """Return the face of a client that exists."""
        made = cls.__new__(cls)
        made._thread, made._client = thread, client
        return made

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._thread.run(partial(self._client.__aexit__, kind, error, traceback))
        finally:
            self._thread.on_exit(id(self._client), None)

    def start(self) -> Self:
        """Connect to the cluster; `with` calls this."""
        # Closed as after an error at the exit: nothing is worth waiting for then.
        self._thread.on_exit(id(self._client), partial(self._client.__aexit__, SystemExit, SystemExit(), None))
        self._thread.run(self._client.start)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._thread.run(partial(getattr, self._client, name))

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"


@cache
def face_of(asynchronous: type) -> type[Face]:
    """Return the blocking class of an asynchronous one: its public methods, with the same signatures and docstrings."""
    members: dict[str, Any] = {
        "__doc__": _blocking_words(asynchronous.__doc__),
        "__module__": "odradek.clients.blocking",
        "__signature__": inspect.signature(asynchronous),
        "_asynchronous": asynchronous,
    }
    for name, member in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_") and name != "start":
            members[name] = _iterating(name, member) if inspect.isasyncgenfunction(member) else _blocking(name, member)
    if hasattr(asynchronous, "__anext__"):
        members["__iter__"] = lambda self: self
        members["__next__"] = _next
    return type(asynchronous.__name__, (Face,), members)


def _blocking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    callbacks = _callback_parameters(function)

    @wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for key in callbacks & kwargs.keys():
            if kwargs[key] is not None:
                kwargs[key] = in_callers_thread(kwargs[key])
        try:
            result = self._thread.run(partial(getattr(self._client, name), *args, **kwargs))
        finally:
            if name == "close":
                self._thread.on_exit(id(self._client), None)
        return _converted(self, result)

    return _documented(method, function)


def _iterating(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        items = self._thread.run(partial(getattr(self._client, name), *args, **kwargs))
        self._thread.on_exit(id(items), items.aclose)
        try:
            while True:
                try:
                    item = self._thread.run(partial(_step, items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self._thread.is_usable:  # otherwise the loop has closed it at its end
                self._thread.on_exit(id(items), None)
                self._thread.run(items.aclose)

    return _documented(method, function)


async def _step(items: Any) -> Any:
    return await anext(items)


def _next(self: Any) -> Any:
    try:
        return self._thread.run(partial(_step, self._client))
    except StopAsyncIteration:
        raise StopIteration from None


def _converted(face: Face, result: Any) -> Any:
    """Return a result for another thread: futures that can be waited for, and faces of asynchronous objects."""
    if isinstance(result, asyncio.Future):
        return _thread_future(result)
    if isinstance(result, list) and result and isinstance(result[0], tuple) and any(map(asyncio.isfuture, result[0])):
        return [type(each)(*(_converted(face, value) for value in each)) for each in result]
    if result is face._client:
        return face
    kind: Any = type(result)
    if kind.__module__.startswith(_PACKAGE) and any(map(inspect.iscoroutinefunction, vars(kind).values())):
        return face_of(kind).of(result, face._thread)
    return result


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
    """Return the parameters for callbacks that may be coroutine functions, which `in_callers_thread` can replace."""
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


__all__ = ["Face", "face_of"]
