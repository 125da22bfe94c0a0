"""Whether a batch may be written to a table, and the course of its commit: events in, requests out.

A pipeline has a tag `odradek.PIPELINE` in its table, on its last snapshot. A commit moves the tag together with `main`,
and requires that the tag is where it was when the batch was planned. So of two committers one is refused, whatever
others append to `main`, and a lost answer does no harm:

    LOADING ──loaded──▶ COMMITTING ──accepted──▶ ENDED
       ▲  └─the tag has our batch─────────────────▲
       └────refused, or the outcome is unknown────┘ (of COMMITTING)

Nothing is deleted on the way: a snapshot whose outcome is unknown may be in the table.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from odradek.model import PreconditionError, TopicPartition, UnavailableError
from odradek.tables.machine.marks import PREFIX, Mark, Progress

MOST_ATTEMPTS: Final = 100
"""How often a commit is built anew because others committed first; each time one of them has succeeded."""
MOST_LOST_ANSWERS: Final = 3
"""How often a commit of unknown outcome is looked up and tried again before the batch fails."""


class TableState(Struct, frozen=True, kw_only=True):
    """A table's metadata as a commit of one pipeline sees it."""

    uuid: str
    main: int | None
    """The snapshot of the branch `main`; None for an empty table."""
    tag: int | None
    """The snapshot of the pipeline's tag."""
    mark: Mark | None
    """The mark of the tag's snapshot; None without a tag, or if the snapshot is not a pipeline's."""
    is_in_main: bool = True
    """Whether the tag's snapshot is an ancestor of `main` or `main` itself; True without a tag."""
    in_main: Mark | None = None
    """After a rollback, the mark of the pipeline's last snapshot that `main` still has."""
    accepts: bool = False
    """Whether a user accepts the pipeline's next batch as it is (`odradek table accept`)."""


class Batch(Struct, frozen=True, kw_only=True):
    """A batch to write: its mark, which has the end offsets, and the offsets where it starts, if they are known."""

    mark: Mark
    start: Progress = ()


class Planned(Struct, frozen=True, kw_only=True):
    """The table and the snapshot of the tag that the tasks of a batch were started with."""

    uuid: str
    tag: int | None


def tag_name(pipeline: str) -> str:
    return PREFIX + pipeline


def is_written(state: TableState, query: str, batch: int) -> bool:
    """Return whether the table has this batch of the query already, and was not rolled back to before it."""
    return state.mark is not None and state.is_in_main and (state.mark.query, state.mark.batch) == (query, batch)


def check(state: TableState, batch: Batch, table: str) -> None:
    """Raise `PreconditionError` unless the batch follows what the table has. `table` names it in commands."""
    if state.accepts or is_written(state, batch.mark.query, batch.mark.batch):
        return
    problem = _problem(state, batch)
    if problem is not None:
        raise PreconditionError(
            f"{problem}. To accept the next batch of {batch.mark.pipeline} as it is, which may repeat rows or leave "
            f"some out: odradek table accept {table} {batch.mark.pipeline}{' --new' if state.tag is None else ''}"
        )


def _problem(state: TableState, batch: Batch) -> str | None:
    mark, last = batch.mark, state.mark
    if state.tag is None:
        if mark.batch == 0:
            return None
        return (
            f"the table has no batch of the pipeline {mark.pipeline}, whose checkpoint is at batch {mark.batch}: the "
            "table was dropped, the tag was removed, or another table has the earlier rows of this checkpoint"
        )
    if last is None:
        return f"the tag {tag_name(mark.pipeline)} is on a snapshot that no pipeline wrote: it was moved"
    if not state.is_in_main:
        if state.in_main is not None and last.query != mark.query and _follows(state.in_main.progress, batch.start):
            return None
        return (
            f"the table was rolled back: batch {last.batch} of the pipeline {mark.pipeline}, snapshot {state.tag}, is "
            "no longer in main, and its rows would be missing. With a new checkpoint, the pipeline writes them again"
        )
    if (recreated := _recreated(last.progress, mark.progress)) is not None:
        return (
            f"topic {recreated} was deleted and created again: rows of both would have the same offsets in one table, "
            "so a new table is better"
        )
    if last.query == mark.query and mark.batch == last.batch + 1:
        return None
    if _follows(last.progress, batch.start):
        return None
    if last.query != mark.query:
        return f"{_other(last)}, and this checkpoint starts {_places(last.progress, batch.start)}"
    if mark.batch <= last.batch:
        return (
            f"the checkpoint is at batch {mark.batch}, and the table has batch {last.batch} of the same query: the "
            "checkpoint is older than the table, or another driver runs it"
        )
    return (
        f"the checkpoint is at batch {mark.batch}, and the table ends with batch {last.batch} of the same query: the "
        "table is older than the checkpoint, and the rows between would be missing"
    )


def _other(last: Mark) -> str:
    return (
        f"the table has the rows of another query with the pipeline's name {last.pipeline}, or of an earlier "
        f"checkpoint (query {last.query}, batch {last.batch}, by {last.writer})"
    )


def _recreated(last: Progress, now: Progress) -> str | None:
    """Return a topic that has another id now."""
    for before, after in zip(last, now, strict=False):
        for topic, known in (before or {}).items():
            found = (after or {}).get(topic)
            if found is not None and known.topic_id and found.topic_id and known.topic_id != found.topic_id:
                return topic
    return None


def _follows(last: Progress, start: Progress) -> bool:
    """Return whether a batch starts where the table ends, in every partition of every source."""
    if not last or len(last) != len(start) or None in last or None in start:
        return False
    return not _gaps(last, start)


def _gaps(last: Progress, start: Progress) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the partitions that start elsewhere, with the table's next offset and the start."""
    found: dict[TopicPartition, tuple[int, int | None]] = {}
    for before, after in zip(last, start, strict=False):
        for topic, known in (before or {}).items():
            starts = after[topic].offsets if after is not None and topic in after else {}
            for partition, offset in known.offsets.items():
                if starts.get(partition) != offset:
                    found[TopicPartition(topic, partition)] = offset, starts.get(partition)
    return found


def _places(last: Progress, start: Progress) -> str:
    gaps = _gaps(last, start)
    if not gaps:
        return "at unknown offsets"
    partition, (known, starts) = min(gaps.items())
    where = "without it" if starts is None else f"at its offset {starts}"
    return f"elsewhere: the table ends at offset {known} of {partition}, and the checkpoint starts {where}"


class Load(Struct, frozen=True):
    """A request to read the table's metadata."""


class Send(Struct, frozen=True, kw_only=True):
    """A request to commit a new snapshot on top of `main`, if table, `main` and tag are as in `state`."""

    state: TableState
    tag: int | None


class Ended(Struct, frozen=True):
    """The end of a commit: the table has the batch, in a snapshot of this or of another attempt."""

    snapshot: int


Request = Load | Send | Ended


class Loaded(Struct, frozen=True):
    """The table's metadata was read."""

    state: TableState


class Accepted(Struct, frozen=True):
    """The catalog has accepted the commit."""

    snapshot: int


class Refused(Struct, frozen=True):
    """The catalog has refused the commit: a requirement is not met."""

    reason: str


class Unknown(Struct, frozen=True):
    """The catalog's answer was lost: the commit may be done, or be done later."""

    reason: str


Event = Loaded | Accepted | Refused | Unknown


class Phase(Enum):
    """Where a commit stands."""

    LOADING = "loading"
    COMMITTING = "committing"
    ENDED = "ended"


NEXT: Final[Mapping[Phase, Mapping[type[Event], Phase]]] = {
    Phase.LOADING: {Loaded: Phase.COMMITTING},
    Phase.COMMITTING: {Accepted: Phase.ENDED, Refused: Phase.LOADING, Unknown: Phase.LOADING},
    Phase.ENDED: {},
}
"""The phase after each event; `Loaded` ends a commit if the table has the batch."""


class Commit:
    """The commit of one batch. `start` returns the first request, `handle` the next one."""

    def __init__(self, batch: Batch, planned: Planned, table: str) -> None:
        self.phase = Phase.LOADING
        self._batch, self._planned, self._table = batch, planned, table
        self._attempts = self._lost_answers = 0
        self._reason = ""

    def start(self) -> Request:
        return Load()

    def handle(self, event: Event) -> Request:
        """Return the next request. Raise `PreconditionError` if this batch must not be committed any more."""
        self.phase = NEXT[self.phase][type(event)]
        if isinstance(event, Accepted):
            return Ended(event.snapshot)
        if isinstance(event, (Refused, Unknown)):
            self._reason = event.reason
            self._lost_answers += isinstance(event, Unknown)
            return Load()
        return self._decide(event.state)

    def _decide(self, state: TableState) -> Request:
        mark = self._batch.mark
        if state.uuid != self._planned.uuid:
            raise PreconditionError(
                f"the table {self._table} was dropped and created again while batch {mark.batch} of {mark.pipeline} "
                "was written, which writes nothing: if the new table shall have all rows, start with a new checkpoint"
            )
        if is_written(state, mark.query, mark.batch):
            assert state.tag is not None
            self.phase = Phase.ENDED
            return Ended(state.tag)
        if state.tag != self._planned.tag:
            raise PreconditionError(self._overtaken(state))
        check(state, self._batch, self._table)
        if self._attempts == MOST_ATTEMPTS or self._lost_answers == MOST_LOST_ANSWERS:
            raise UnavailableError(
                f"batch {mark.batch} of {mark.pipeline} is not in the table {self._table} after {self._attempts} "
                f"commits: {self._reason}"
            )
        self._attempts += 1
        return Send(state=state, tag=self._planned.tag)

    def _overtaken(self, state: TableState) -> str:
        mark, last = self._batch.mark, state.mark
        start = f"batch {mark.batch} of the pipeline {mark.pipeline} writes nothing: "
        if state.tag is None:
            return f"{start}its tag {tag_name(mark.pipeline)} was removed meanwhile"
        if last is None:
            return f"{start}its tag {tag_name(mark.pipeline)} was moved to a snapshot that no pipeline wrote"
        return (
            f"{start}meanwhile {last.writer} committed batch {last.batch} of query {last.query} under its name. Stop "
            "one of them, or give it another pipeline name"
        )
