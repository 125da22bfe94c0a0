"""A topic whose oldest records an administrator deletes, one call after the other: deleted records do not come back.

Some calls ask for a deletion beyond the high watermark, which is refused.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from odradek.clients import Admin
from odradek.clients.offsets import EARLIEST
from odradek.model import OdradekError
from odradek.simulation.promises import CLIENTS
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.retained import Retained
from odradek.simulation.world import World, cancel


class Deletions(Retained):
    """A producer, a reader, and an administrator that deletes."""

    clients: ClassVar[Sequence[str]] = ("trimmed-writer", "trimmed-reader", "trimmer")
    topics: ClassVar[Sequence[str]] = ("trimmed",)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._deleted = self._requested = 0
        """The end of the deletions that succeeded, and of all that were requested."""
        self._returned: list[str] = []
        """Findings: deleted records were in the log again, or a deletion beyond the high watermark succeeded."""

    async def start(self) -> None:
        """Start the clients, and return when records have been read."""
        await super().start()
        self._tasks.append(self.world.spawn("trimmer", self._delete()))

    async def finish(self) -> list[str]:
        """Delete no more, and check what `Retained` checks."""
        await cancel(self._tasks.pop())
        return await super().finish()

    def _errors_of_start(self, start: int) -> list[str]:
        if self._returned or self._deleted <= start <= self._requested:
            return self._returned
        return [f"the log of {self._place} starts at {start}; deletions to {self._deleted} were acknowledged"]

    async def _delete(self) -> None:
        chance, place = self.world.simulation.entropy("trimmer"), self._place
        async with self.world.admin("trimmer", **CLIENTS) as admin:
            while True:
                await asyncio.sleep(chance.choice((0.1, 1.0, 3.0)))
                with suppress(OdradekError):
                    start = (await admin.list_offsets({place: EARLIEST}))[place].offset
                    if start < self._deleted:
                        self._returned.append(f"{place} was deleted to {self._deleted}, and starts at {start} again")
                        return
                    if chance.random() < 0.1 and await self._deletes_beyond_the_end(admin):
                        return
                    self._requested = max(self._requested, len(self._acknowledged) - chance.randrange(10))
                    await admin.delete_records({place: self._requested})
                    self._deleted = self._requested

    async def _deletes_beyond_the_end(self, admin: Admin) -> bool:
        """Request a deletion of records that do not exist; return whether it succeeds, which is a finding."""
        beyond = len(self._acknowledged) + 1_000_000
        try:
            await admin.delete_records({self._place: beyond})
        except OdradekError:
            return False
        self._returned.append(f"{self._place} was deleted to {beyond}, beyond its high watermark")
        return True
