"""The live parts of open pages: one poller per session and address, which all viewers of it share.

A poller takes a page's values, renders the live blocks and keeps their last HTML. Each viewer's stream sends the blocks
that have changed since it last sent them, so a slow viewer skips versions. The poller ends when its last viewer leaves.

```
event: part      data: {"id": …, "html": …}      the new content of the element
event: end       data:                           the page changes no more
```
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final

_log = logging.getLogger("odradek.page")
Parts = Mapping[str, str]
"""HTML by the id of its element."""
_KEEP_ALIVE_S: Final = 15.0
"""The time after which a silent stream sends a comment, so that a viewer who has gone is noticed."""
_RETRY_MS: Final = 1000


class LiveParts:
    """The pollers of a page's server."""

    def __init__(self) -> None:
        self._pollers: dict[tuple[str, str], _Poller] = {}

    def __len__(self) -> int:
        return len(self._pollers)

    def of_session(self, session_key: str) -> int:
        """Return the number of addresses that a session watches."""
        return sum(key[0] == session_key for key in self._pollers)

    async def stream(self, key: tuple[str, str], updates: Callable[[], AsyncIterator[Parts]]) -> AsyncIterator[bytes]:
        """Yield the events of one viewer; `updates` makes the iterator of an address without a poller."""
        poller = self._pollers.get(key)
        if poller is None:
            poller = self._pollers[key] = _Poller(updates)
        poller.viewers += 1
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            async for event in poller.events():
                yield event
        finally:
            poller.viewers -= 1
            if not poller.viewers:
                if self._pollers.get(key) is poller:
                    del self._pollers[key]
                await poller.close()

    async def end(self, session_key: str) -> None:
        for key, poller in list(self._pollers.items()):
            if key[0] == session_key:
                await poller.close()

    async def close(self) -> None:
        for poller in list(self._pollers.values()):
            await poller.close()


class _Poller:
    """The values of one address: each part's HTML with the version at which it changed."""

    def __init__(self, updates: Callable[[], AsyncIterator[Parts]]) -> None:
        self.viewers = 0
        self._updates = updates
        self._parts: dict[str, tuple[int, str]] = {}
        self._version = 0
        self._has_ended = False
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events for one viewer until the poller ends."""
        seen = 0
        while True:
            for name, (version, html) in list(self._parts.items()):
                if version > seen:
                    yield b"event: part\ndata: " + json.dumps({"id": name, "html": html}).encode() + b"\n\n"
            seen = self._version
            if self._has_ended:
                yield b"event: end\ndata:\n\n"
                return
            try:
                async with asyncio.timeout(_KEEP_ALIVE_S), self._changed:
                    await self._changed.wait_for(lambda seen=seen: self._version > seen or self._has_ended)  # type: ignore[misc]
            except TimeoutError:
                yield b":\n\n"

    async def close(self) -> None:
        """Stop reading; the streams of viewers end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with aclosing(self._updates()) as updates:  # type: ignore[type-var]
                async for parts in updates:
                    await self._publish(parts)
        except Exception:
            _log.exception("A page's live parts have ended by an error")
        finally:
            async with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    async def _publish(self, parts: Parts) -> None:
        changed = {name: html for name, html in parts.items() if self._parts.get(name, (0, None))[1] != html}
        if changed:
            async with self._changed:
                self._version += 1
                self._parts |= {name: (self._version, html) for name, html in changed.items()}
                self._changed.notify_all()
