"""Whether a batch may be written, and the course of a commit, without a catalog."""

from typing import Any

import pytest
from msgspec.structs import replace

from odradek.model import PreconditionError, UnavailableError
from odradek.tables.machine.committing import (
    MOST_ATTEMPTS,
    MOST_LOST_ANSWERS,
    Accepted,
    Batch,
    Commit,
    Ended,
    Load,
    Loaded,
    Phase,
    Planned,
    Refused,
    Send,
    TableState,
    Unknown,
    check,
    is_written,
)
from odradek.tables.machine.marks import Mark, Progress, TopicOffsets


def progress(*offsets: int, topic_id: str = "a1") -> Progress:
    return ({"orders": TopicOffsets(topic_id, dict(enumerate(offsets)))},)


def mark(number: int, *, query: str = "q", end: Progress = (), writer: str = "here") -> Mark:
    return Mark(pipeline="p", query=query, batch=number, writer=writer, progress=end)


def batch(number: int, *, query: str = "q", start: Progress = (), end: Progress = ()) -> Batch:
    return Batch(mark=mark(number, query=query, end=end), start=start)


EMPTY = TableState(uuid="u", main=None, tag=None, mark=None)


def at(number: int, *, tag: int = 7, main: int = 9, query: str = "q", end: Progress = (), **others: Any) -> TableState:
    return TableState(uuid="u", main=main, tag=tag, mark=mark(number, query=query, end=end, writer="there"), **others)


@pytest.mark.parametrize(
    ("state", "given"),
    [
        (EMPTY, batch(0)),
        (replace(EMPTY, main=3), batch(0)),
        (at(4), batch(5)),
        (at(4), batch(4)),
        (at(4, end=progress(10, 20)), batch(0, query="new", start=progress(10, 20))),
        (at(4, end=progress(10)), batch(0, query="new", start=progress(10, 0))),
        (at(4, end=progress(10, 20)), batch(6, start=progress(10, 20))),
        (
            at(4, end=progress(10), is_in_main=False, in_main=mark(2, end=progress(5))),
            batch(0, query="new", start=progress(5)),
        ),
    ],
    ids=[
        "empty",
        "foreign rows",
        "next",
        "same",
        "new checkpoint",
        "new partition",
        "batches between",
        "after a rollback",
    ],
)
def test_a_batch_that_follows_the_table_is_written(state: TableState, given: Batch) -> None:
    check(state, given, "out/orders")


REFUSED = {
    "dropped": (EMPTY, batch(5), r"no batch of the pipeline p, whose checkpoint is at batch 5: the table was dropped"),
    "moved tag": (replace(at(4), mark=None), batch(5), r"the tag odradek\.p is on a snapshot that no pipeline wrote"),
    "rolled back": (at(4, is_in_main=False), batch(5), r"rolled back: batch 4 of the pipeline p, snapshot 7, is no"),
    "rolled back and repeated": (at(4, is_in_main=False), batch(4), r"rolled back"),
    "recreated topic": (
        at(4, end=progress(10)),
        batch(5, start=progress(10), end=progress(0, topic_id="b2")),
        r"topic orders was deleted and created again",
    ),
    "two pipelines of one name": (
        at(4, query="other", end=progress(10)),
        batch(0, start=progress(0)),
        r"another query with the pipeline's name p, .*query other, batch 4, by there.*at offset 10 of orders-0, and",
    ),
    "other query at unknown offsets": (at(4, query="other"), batch(0), r"this checkpoint starts at unknown offsets"),
    "a partition fewer": (
        at(4, query="other", end=progress(10, 20)),
        batch(0, start=progress(10)),
        r"offset 20 of orders-1, and the checkpoint starts without it",
    ),
    "older checkpoint": (at(4), batch(3), r"the checkpoint is older than the table"),
    "older table": (at(4), batch(6), r"the table is older than the checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_that_does_not_follow_the_table_is_refused_with_a_command(case: str) -> None:
    state, given, why = REFUSED[case]
    with pytest.raises(PreconditionError, match=why) as refusal:
        check(state, given, "out/orders")
    assert str(refusal.value).endswith(f"odradek table accept out/orders p{'' if state.tag else ' --new'}")


@pytest.mark.parametrize("case", REFUSED)
def test_a_user_may_accept_a_batch_that_was_refused(case: str) -> None:
    state, given, _ = REFUSED[case]
    check(replace(state, accepts=True), given, "out/orders")


def test_a_batch_of_a_table_that_was_rolled_back_is_not_written() -> None:
    assert is_written(at(4), "q", 4)
    assert not is_written(at(4, is_in_main=False), "q", 4)


def loading(planned: int | None = 7, number: int = 5) -> Commit:
    commit = Commit(batch(number), Planned(uuid="u", tag=planned), "out/orders")
    assert commit.start() == Load()
    return commit


def test_a_commit_requires_main_as_seen_and_the_tag_as_planned() -> None:
    commit = loading()
    request = commit.handle(Loaded(at(4)))
    assert request == Send(state=at(4), tag=7)
    assert commit.handle(Accepted(11)) == Ended(11)
    assert commit.phase is Phase.ENDED


def test_a_refused_commit_is_built_anew_on_the_new_head() -> None:
    commit = loading()
    commit.handle(Loaded(at(4)))
    assert commit.handle(Refused("main has changed")) == Load()
    assert commit.handle(Loaded(at(4, main=10))) == Send(state=at(4, main=10), tag=7)


@pytest.mark.parametrize("event", [Refused("main has changed"), Unknown("timed out")])
def test_a_commit_whose_snapshot_is_found_is_done(event: Any) -> None:
    commit = loading()
    commit.handle(Loaded(at(4)))
    commit.handle(event)
    own = replace(at(5, tag=11), mark=mark(5))
    assert commit.handle(Loaded(own)) == Ended(11)


def test_a_commit_of_unknown_outcome_that_is_not_there_is_sent_again_with_the_same_requirement() -> None:
    commit = loading()
    commit.handle(Loaded(at(4)))
    commit.handle(Unknown("timed out"))
    assert commit.handle(Loaded(at(4))) == Send(state=at(4), tag=7)


def test_a_batch_that_another_driver_of_the_query_committed_is_done() -> None:
    assert loading().handle(Loaded(at(5, tag=11))) == Ended(11)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (at(6, tag=11), "there committed batch 6 of query q under its name"),
        (at(0, tag=11, query="other"), "there committed batch 0 of query other under its name"),
        (EMPTY, r"its tag odradek\.p was removed"),
        (replace(at(4, tag=11), mark=None), "was moved to a snapshot that no pipeline wrote"),
        (replace(at(4), uuid="v"), "was dropped and created again"),
        (at(4, is_in_main=False), "was rolled back"),
    ],
    ids=["later batch", "other pipeline", "removed tag", "moved tag", "new table", "rolled back"],
)
def test_a_commit_that_was_overtaken_stops_with_the_reason(state: TableState, why: str) -> None:
    with pytest.raises(PreconditionError, match=why):
        loading().handle(Loaded(state))


def test_commits_have_a_limit() -> None:
    commit = loading()
    for number in range(MOST_ATTEMPTS):
        commit.handle(Loaded(at(4, main=number)))
        commit.handle(Refused("main has changed"))
    with pytest.raises(UnavailableError, match="after 100 commits: main has changed"):
        commit.handle(Loaded(at(4, main=-1)))


def test_commits_of_unknown_outcome_have_a_lower_limit() -> None:
    commit = loading()
    for _ in range(MOST_LOST_ANSWERS):
        commit.handle(Loaded(at(4)))
        commit.handle(Unknown("no space left on device"))
    with pytest.raises(UnavailableError, match="after 3 commits: no space left"):
        commit.handle(Loaded(at(4)))
