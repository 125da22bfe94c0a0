"""Marks of rare branches and of transitions. `collecting` counts them; outside of it a mark does nothing.

```python
probe("replication: a follower truncates below its high watermark")

with collecting() as counts:
    ...
counts.probes  # Counter({"replication: a follower …": 2})
```
A name is a string literal: the package, a colon, and what happens. `odradek.simulation.coverage` reads the names from
the source, and lists those that no seed has reached.

`perturb` marks a place where the code may do something rare that its contract allows, such as refuse a request with a
retriable error. It does so only within `perturbing`: in seeds of the simulator.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct, field


class ProbeCounts(Struct, kw_only=True):
    """How often each rare branch and each transition was reached."""

    probes: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)


LATE_S: Final = 0.3
"""The delay of what a `perturb` lets be late."""
_collection: ProbeCounts | None = None
_listeners: list[Callable[[str], None]] = []
_decide: Callable[[str], bool] | None = None


def probe(name: str) -> None:
    """Count that a rare branch is reached."""
    if _collection is not None:
        _collection.probes[name] += 1
        for listener in _listeners:
            listener(name)


def perturb(name: str) -> bool:
    """Return whether to do the rare thing `name` now; always False outside of `perturbing`."""
    if _decide is None or not _decide(name):
        return False
    probe(name)
    return True


def transition(machine: str, before: str, after: str) -> None:
    """Count a transition of a state machine."""
    if _collection is not None:
        name = f"{machine}: {before} -> {after}"
        _collection.transitions[name] += 1
        for listener in _listeners:
            listener(name)


@contextmanager
def collecting() -> Iterator[ProbeCounts]:
    """Count in this process until the end of the block. An outer collection does not count meanwhile."""
    global _collection
    outer, _collection = _collection, ProbeCounts()
    try:
        yield _collection
    finally:
        _collection = outer


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with the name of each mark that is counted until the end of the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def perturbing(decide: Callable[[str], bool]) -> Iterator[None]:
    """Let `decide` answer each `perturb` until the end of the block."""
    global _decide
    outer, _decide = _decide, decide
    try:
        yield
    finally:
        _decide = outer
