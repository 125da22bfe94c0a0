"""Clients outlive the task, and nothing else does: no failed task's client, no parent's, no more than a few (M11)."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from odradek.spark.reading.worker_clients import MOST_CLIENTS, close_idle_clients, lend_client


class FakeClient:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


async def opened() -> FakeClient:
    return FakeClient()


@pytest.fixture(autouse=True)
def no_idle_clients() -> Iterator[None]:
    close_idle_clients()
    yield
    close_idle_clients()


def test_the_next_task_gets_the_client_of_the_last_one() -> None:
    with lend_client("a", opened) as first:
        pass
    with lend_client("b", opened) as other, lend_client("a", opened) as again:
        assert again is first
        assert other is not first
    close_idle_clients()
    assert (first.closed, other.closed) == (1, 1)


def test_the_client_of_a_task_that_failed_is_closed() -> None:
    with suppress(ValueError), lend_client("a", opened) as failed:
        raise ValueError
    with lend_client("a", opened) as following:
        assert following is not failed
    assert failed.closed == 1


def test_two_tasks_at_once_have_a_client_each_and_one_of_them_stays() -> None:
    with lend_client("a", opened) as outer, lend_client("a", opened) as inner:
        assert inner is not outer
    assert (inner.closed, outer.closed) == (1, 0)


def test_the_client_that_was_idle_longest_makes_room() -> None:
    lent = []
    for key in range(MOST_CLIENTS + 1):
        with lend_client(key, opened) as client:
            lent.append(client)
    assert [client.closed for client in lent] == [1] + [0] * MOST_CLIENTS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_does_not_touch_its_parent_s_clients() -> None:
    with lend_client("a", opened) as parents:
        pass
    pid = os.fork()
    if pid == 0:
        with lend_client("a", opened) as own:
            os._exit(7 if own is not parents and not parents.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with lend_client("a", opened) as again:
        assert again is parents
