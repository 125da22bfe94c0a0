"""Allocates producer ids, unique in the cluster, from blocks that the broker gets from the metadata tree.

The rest of a stopped broker's block stays unused.
"""

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._left = iter(range(0))
        self._allocating = asyncio.Lock()

    async def take(self) -> int:
        """Return an unused producer id. Raise `OdradekError` if no block can be allocated."""
        async with self._allocating:
            while (producer_id := next(self._left, None)) is None:
                self._left = iter(await self._allocate_block())
            return producer_id
