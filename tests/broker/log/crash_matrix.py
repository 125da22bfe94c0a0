"""A crash at any single change that a scripted life makes to the disk: what the crash matrices of the log share.

A life has the disk that it runs on, and goes on until the power is cut. A check starts again on what the crash left and
compares it with what the life was promised.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import pytest

from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival


class Life(Protocol):
    disk: MemoryDisk

    def run(self) -> None: ...


L = TypeVar("L", bound=Life)
NewLife = Callable[[MemoryDisk], L]


def whole(new_life: NewLife[L]) -> L:
    """Return a life that no crash ended; its disk counted the changes."""
    life = new_life(MemoryDisk())
    life.run()
    assert life.disk.operations > 150, "there is something to try"
    return life


def crash(disk: MemoryDisk, survival: Survival | None) -> None:
    """Kill the process, or cut the power where `survival` says what is left of the unsynced."""
    if survival is None:
        disk.kill()
    else:
        disk.cut_power(survival)


def crashed(new_life: NewLife[L], survival: Survival | None, operation: int, state: int = 0) -> L:
    """Return a life that ended at its `operation`th change of the disk; `state` draws what a power cut leaves."""
    disk = MemoryDisk(random.Random(f"{operation} {state}"))
    disk.cut_power_at(operation)
    life = new_life(disk)
    with pytest.raises(PowerCutError):
        life.run()
    crash(disk, survival)
    return life


@contextmanager
def noted(note: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


def check_crashes(
    new_life: NewLife[L],
    survival: Survival | None,
    check: Callable[[L], None],
    operations: Iterable[int],
    states: Iterable[int] = (0,),
) -> None:
    """Check the life after a crash at each of these changes, in each of these states."""
    for operation in operations:
        for state in states:
            with noted(f"crash at operation {operation}, state {state}"):
                check(crashed(new_life, survival, operation, state))
