"""Short pauses of Python's garbage collector, in a process with very many objects.

A full collection goes over all objects, for 0.3 s if they are a million, and no thread runs meanwhile. One request with
very many entries is enough to cause it. Therefore the survivors of a full collection are frozen: the next one goes over
younger objects only.
"""

import gc
import time
from collections.abc import Callable
from typing import Any, Final

_THAW_S: Final = 3600.0
"""After this time, and when the frozen objects have doubled, a full collection goes over them, too: some have become
garbage, for example a failed request with its traceback."""
_YOUNG_OBJECTS: Final = 5_000
"""How many new objects begin a collection; Python's 700 would call `_collecting` too often."""
_MIDDLE_AFTER: Final = 5
_FULL_AFTER: Final = 3
"""How many collections of a generation begin one of the next: about 100,000 new objects begin a full one, 0.03 s."""
_FEWEST_OBJECTS: Final = 400_000
"""Below this number of frozen objects, about 40 MB, doubling causes no collection of them."""
_MOST_OBJECTS: Final = 400_000
"""Above this many frozen objects (0.12 s) they stay frozen, and garbage among them that is in a cycle is never freed:
what belongs to a client must break its cycles when the client is gone."""


class FrozenSurvivors:
    """Freezes the survivors of full collections."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        fewest_objects: int = _FEWEST_OBJECTS,
        most_objects: int = _MOST_OBJECTS,
    ) -> None:
        self._monotonic = monotonic
        self._fewest_objects = fewest_objects
        self._most_objects = most_objects
        self._frozen = self._most = 0
        self._is_whole = True
        """Whether the collection goes over all objects."""
        self._thaw_at = 0.0

    def start(self) -> None:
        """Freeze all objects now, and survivors from now on."""
        gc.set_threshold(_YOUNG_OBJECTS, _MIDDLE_AFTER, _FULL_AFTER)
        gc.freeze()
        self._begin(gc.get_freeze_count())
        gc.callbacks.append(self._collecting)

    def _begin(self, frozen: int) -> None:
        self._frozen, self._most = frozen, max(2 * frozen, self._fewest_objects)
        self._thaw_at = self._monotonic() + _THAW_S

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._is_whole = False
            if self._frozen > self._most or self._monotonic() >= self._thaw_at:
                self._frozen = gc.get_freeze_count()  # without those that were freed
                if self._frozen > self._most_objects:
                    self._begin(self._frozen)
                elif self._frozen > self._most or self._monotonic() >= self._thaw_at:
                    self._is_whole = True
                    gc.unfreeze()
            return
        if self._is_whole:
            gc.freeze()
            self._begin(gc.get_freeze_count())
        else:
            self._frozen += len(gc.get_objects(generation=2))
            gc.freeze()
