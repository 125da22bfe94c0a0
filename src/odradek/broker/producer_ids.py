"""Producer ids, unique in the cluster for ever: each broker takes blocks of them from the metadata tree.

A broker that dies wastes the rest of its block and nothing worse.
"""

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    """One broker's supply, out of blocks that nobody else has."""

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._left = iter(range(0))
        self._allocating = asyncio.Lock()

    async def take(self) -> int:
        """An id that nobody has had. Raises what `allocate_block` raises."""
        async with self._allocating:
            while (producer_id := next(self._left, None)) is None:
                self._left = iter(await self._allocate_block())
            return producer_id
