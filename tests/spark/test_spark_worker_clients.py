"""Clients outlive the task, and nothing else does: no failed task's client, no parent's, no more than a few (M11)."""

import os
from contextlib import suppress

import pytest

from odradek.spark.reading.worker_clients import MOST_CLIENTS, WorkerClients, close_worker_clients, worker_clients


class FakeClient:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


async def opened() -> FakeClient:
    return FakeClient()


def test_the_next_task_gets_the_client_of_the_last_one() -> None:
    clients = WorkerClients()
    with clients.lend("a", opened) as first:
        pass
    with clients.lend("b", opened) as other, clients.lend("a", opened) as again:
        assert again is first
        assert other is not first
    clients.close()
    assert (first.closed, other.closed) == (1, 1)


def test_the_client_of_a_task_that_failed_is_closed() -> None:
    clients = WorkerClients()
    with suppress(ValueError), clients.lend("a", opened) as failed:
        raise ValueError
    with clients.lend("a", opened) as following:
        assert following is not failed
    assert failed.closed == 1
    clients.close()


def test_two_tasks_at_once_have_a_client_each_and_one_of_them_stays() -> None:
    clients = WorkerClients()
    with clients.lend("a", opened) as outer, clients.lend("a", opened) as inner:
        assert inner is not outer
    assert (inner.closed, outer.closed) == (1, 0)
    clients.close()


def test_the_client_that_was_idle_longest_makes_room() -> None:
    clients = WorkerClients()
    lent = []
    for key in range(MOST_CLIENTS + 1):
        with clients.lend(key, opened) as client:
            lent.append(client)
    assert [client.closed for client in lent] == [1] + [0] * MOST_CLIENTS
    clients.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_does_not_touch_its_parent_s_clients() -> None:
    close_worker_clients()
    parent = worker_clients()
    pid = os.fork()
    if pid == 0:
        os._exit(7 if worker_clients() is not parent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert worker_clients() is parent
    close_worker_clients()
