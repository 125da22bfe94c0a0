"""Drivers that race, crash and lose answers, on a model of a catalog: each batch is in the table once, by seeds.

A driver repeats its batch after a crash, as Spark does from its checkpoint; a second one of the same checkpoint is a
zombie. Commits may be lost, answered late or applied after their answer was given up. Others append, too.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from msgspec import Struct

from odradek.model import OdradekError
from odradek.tables.machine.committing import (
    Accepted,
    Batch,
    Commit,
    Ended,
    Event,
    Load,
    Loaded,
    Planned,
    Refused,
    Send,
    TableState,
    Unknown,
    check,
    is_written,
)
from odradek.tables.machine.marks import Mark

BATCHES = 6


class Snapshot(Struct):
    parent: int | None
    mark: Mark | None
    file: int = 0


class Catalog:
    """A table in a catalog that compares and swaps."""

    def __init__(self) -> None:
        self.snapshots: dict[int, Snapshot] = {}
        self.main: int | None = None
        self.tag: int | None = None
        self.files: set[int] = {0}
        self._written = 0

    def write_file(self) -> int:
        self._written += 1
        self.files.add(self._written)
        return self._written

    def state(self) -> TableState:
        mark = None if self.tag is None else self.snapshots[self.tag].mark
        return TableState(uuid="u", main=self.main, tag=self.tag, mark=mark)

    def commit(self, request: Send, mark: Mark, file: int) -> Event:
        if (self.main, self.tag) != (request.state.main, request.tag):
            return Refused("a requirement is not met")
        self.tag = self.append(mark, file)
        return Accepted(self.tag)

    def append(self, mark: Mark | None, file: int = 0) -> int:
        self.main, parent = len(self.snapshots), self.main
        self.snapshots[self.main] = Snapshot(parent, mark, file)
        return self.main

    def batches(self) -> list[int]:
        """Return the numbers of our batches in main whose file is there, oldest first."""
        found, each = [], self.main
        while each is not None:
            snapshot = self.snapshots[each]
            found += [snapshot.mark.batch] if snapshot.mark and snapshot.file in self.files else []
            each = snapshot.parent
        return found[::-1]


Handle = Callable[[Commit, Event], object]


class GivenUpError(OdradekError):
    """The end of a commit whose driver deletes the files."""


def driver(
    catalog: Catalog, done: set[int], late: list[Callable[[], None]], chance: random.Random, name: str, handle: Handle
) -> Iterator[None]:
    """Write batches to the end; each `yield` is a point where others may act, and where this driver may be killed."""
    while (number := max(done, default=-1) + 1) < BATCHES:
        mark = Mark(pipeline="p", query="q", batch=number, writer=name)
        seen = catalog.state()
        yield
        if is_written(seen, "q", number):
            done.add(number)
            continue
        check(seen, Batch(mark=mark), "t")
        file = catalog.write_file()
        commit = Commit(Batch(mark=mark), Planned(uuid="u", tag=seen.tag), "t")
        request: object = commit.start()
        while not isinstance(request, Ended):
            yield
            if isinstance(request, Load):
                event: Event = Loaded(catalog.state())
            else:
                assert isinstance(request, Send)
                event = _sent(partial(catalog.commit, request, mark, file), late, chance)
            yield
            try:
                request = handle(commit, event)
            except GivenUpError:
                catalog.files.discard(file)
                raise
        yield
        done.add(number)


def _sent(send: Callable[[], Event], late: list[Callable[[], None]], chance: random.Random) -> Event:
    kind = chance.random()
    if kind < 0.15:
        return Unknown("the request was lost")
    if kind < 0.3:
        late.append(lambda: void(send()))
        return Unknown("the request is still on its way")
    event = send()
    return Unknown("the answer was lost") if kind < 0.45 else event


def void(_: object) -> None:
    pass


def play(seed: int, handle: Handle = Commit.handle) -> list[int] | None:
    """Return the batches in main after a race of two drivers of one checkpoint; None if they do not get on."""
    chance = random.Random(seed)
    catalog, done = Catalog(), set[int]()
    late: list[Callable[[], None]] = []
    drivers: dict[str, Iterator[None]] = {}
    for _ in range(2000):
        if len(done) == BATCHES and not late:
            return catalog.batches()
        what = chance.random()
        if what < 0.05:
            catalog.append(None)
        elif what < 0.1 and late:
            late.pop(chance.randrange(len(late)))()
        elif what < 0.13 and drivers:
            del drivers[chance.choice(sorted(drivers))]  # killed
        else:
            name = chance.choice("ab")
            if name not in drivers:
                drivers[name] = driver(catalog, done, late, chance, name, handle)
            try:
                next(drivers[name])
            except (StopIteration, OdradekError):
                del drivers[name]  # Spark restarts it from the checkpoint
    return None


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_each_batch_is_in_the_table_once(start: int) -> None:
    for seed in range(start, start + 100):
        assert play(seed) == list(range(BATCHES)), f"seed {seed}"


def append_anyway(_: Commit, event: Event) -> object:
    """Commit after a conflict without a look at the tag, as pyiceberg's `append` does."""
    if isinstance(event, Loaded):
        return Send(state=event.state, tag=event.state.tag)
    return Ended(0) if isinstance(event, Accepted) else Load()


def forget_the_plan(commit: Commit, event: Event) -> object:
    """Look for the own batch only: a driver that was overtaken by later batches commits its own after them."""
    if isinstance(event, Loaded) and is_written(event.state, "q", commit._batch.mark.batch):
        return Ended(0)
    return append_anyway(commit, event)


def append_after_a_lost_answer(commit: Commit, event: Event) -> object:
    """Take an unknown outcome for a refusal of `main`, and commit on what is there."""
    return append_anyway(commit, event) if commit._lost_answers else Commit.handle(commit, event)


def delete_after_a_lost_answer(commit: Commit, event: Event) -> object:
    """Delete the files of an unknown outcome, and fail: the snapshot may be there, or be there later."""
    if isinstance(event, Unknown):
        raise GivenUpError
    return Commit.handle(commit, event)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(append_anyway, id="the tag is not required as planned"),
        pytest.param(forget_the_plan, id="only the own batch is looked for"),
        pytest.param(append_after_a_lost_answer, id="append after an unknown outcome"),
        pytest.param(delete_after_a_lost_answer, id="files of an unknown outcome are deleted"),
    ],
)
def test_a_planted_mistake_is_found(mistake: Handle) -> None:
    assert any(play(seed, mistake) != list(range(BATCHES)) for seed in range(200))
