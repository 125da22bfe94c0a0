"""Allocation of producer ids, unique in the cluster: each broker takes blocks of them from the metadata tree.

The rest of a dead broker's block stays unused.
"""

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    """The producer ids of one broker, from its own blocks."""

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._left = iter(range(0))
        self._allocating = asyncio.Lock()

    async def take(self) -> int:
        """Return an unused id. Raise the errors of `allocate_block`."""
        async with self._allocating:
            while (producer_id := next(self._left, None)) is None:
                self._left = iter(await self._allocate_block())
            return producer_id
