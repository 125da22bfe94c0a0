"""A process that holds a session: creates an ephemeral node, says so, and waits to be killed or stopped."""

import asyncio
import sys

from odradek.runtime import system_runtime
from odradek.stores import open_store


async def main(url: str, path: str, session_timeout_ms: int) -> None:
    store = open_store(url, system_runtime(), session_timeout_ms=session_timeout_ms)
    lost = asyncio.Event()
    store.on_session_lost(lost.set)
    await store.create(path, ephemeral=True)
    print("ready", flush=True)
    await lost.wait()
    print("lost", await store.get(path) is None, flush=True)
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
