"""Retries and errors of admin calls for several resources.

A resource is requested again while its error is retriable. A refused change raises a `RefusedError`. A read returns
errors as results or raises the first one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from odradek.clients.cluster import Cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition

K = TypeVar("K")
T = TypeVar("T")


class RefusedError(KafkaError, Generic[K]):
    """Some resources of a request were refused, with `errors` by resource; the others were changed.

    It is not retriable: the call has retried already. `code` is the code of the first error.
    """

    retriable = False

    def __init__(self, errors: Mapping[K, KafkaError]) -> None:
        self.errors = dict(errors)
        first = next(iter(self.errors.values()))
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        super().__init__(first.code, f"{first}{more}")


class RefusedTopicsError(RefusedError[str]):
    """A `RefusedError` with `errors` by topic name."""


class RefusedGroupsError(RefusedError[str]):
    """A `RefusedError` with `errors` by group id."""


class RefusedMembersError(RefusedError[str]):
    """A `RefusedError` with `errors` by member id or group instance id."""


class RefusedUsersError(RefusedError[str]):
    """A `RefusedError` with `errors` by user."""


class RefusedPartitionsError(RefusedError[TopicPartition]):
    """A `RefusedError` with `errors` by partition."""


async def ask_each(
    cluster: Cluster,
    keys: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, T | KafkaError]]],
    *,
    timeout_ms: int,
) -> dict[K, T | KafkaError]:
    """Return the results of `ask` by key; for `timeout_ms`, call it again with the keys whose errors are retriable.

    A key without a result gets UNKNOWN_SERVER_ERROR. Raises the errors that `ask` raises.
    """
    wanted = list(dict.fromkeys(keys))
    found: dict[K, T | KafkaError] = {}

    async def attempt() -> None:
        missing = [key for key in wanted if key not in found or _is_retriable(found[key])]
        answers = await ask(missing)
        for key in missing:
            omitted = KafkaError(ErrorCode.unknown_server_error, f"the broker's response says nothing about {key!r}")
            found[key] = answers.get(key, omitted)
        for key in missing:
            answer = found[key]
            if isinstance(answer, KafkaError) and answer.retriable:
                raise answer

    if wanted:
        try:
            await retrying(cluster, attempt, timeout_ms=timeout_ms)
        except KafkaError as error:
            if not any(error is each for each in found.values()):
                raise
    return found


def errors_of(results: Mapping[K, T | KafkaError]) -> dict[K, KafkaError]:
    """Return the results that are errors."""
    return {key: each for key, each in results.items() if isinstance(each, KafkaError)}


def _is_retriable(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.retriable
