"""The queue of jobs that the metadata loop runs one after the other, for callers that wait for the results."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.cluster.metadata.controller_election import ControllerMovedError
from odradek.metadata.store import SessionExpired
from odradek.model import ErrorCode, KafkaError, OdradekError, UnavailableError

T = TypeVar("T")


class JobQueue:
    """A queue of jobs, limited by the number of requests in progress, which submit one job each."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self._jobs: deque[tuple[Callable[[], Awaitable[None]], Callable[[KafkaError], None]]] = deque()
        self._wake = wake

    async def submit(self, work: Callable[[], Awaitable[T]]) -> T:
        """Queue `work`, and return its result. Every failure is raised as `KafkaError`."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def fail(error: KafkaError) -> None:
            if not answer.done():
                answer.set_exception(error)

        async def job() -> None:
            result = await work()
            if not answer.done():
                answer.set_result(result)

        self._jobs.append((job, fail))
        self._wake()
        return await answer

    async def run_all(self, *, deposed: Callable[[], None]) -> None:
        """Run all jobs. The caller of a job gets its error; an error that is not a `KafkaError` is also raised here.

        `deposed` is called when a job finds that another broker is the controller.
        """
        while self._jobs:
            job, fail = self._jobs.popleft()
            try:
                await job()
            except OdradekError as error:
                fail(as_kafka_error(error))
                if isinstance(error, ControllerMovedError):
                    deposed()
                if not isinstance(error, KafkaError):
                    raise
            except asyncio.CancelledError:
                fail(KafkaError(ErrorCode.not_controller))
                raise
            except BaseException:
                fail(KafkaError(ErrorCode.unknown_server_error))
                raise

    def fail_all(self, error: KafkaError) -> None:
        while self._jobs:
            _, fail = self._jobs.popleft()
            fail(error)


def as_kafka_error(error: OdradekError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ControllerMovedError | SessionExpired):
        return KafkaError(ErrorCode.not_controller, str(error))
    if isinstance(error, UnavailableError):
        return KafkaError(ErrorCode.request_timed_out, str(error))
    return KafkaError(ErrorCode.unknown_server_error, str(error))
