"""Errors of admin calls for several resources.

A refused change raises a `RefusedError`. A read returns errors as results or raises the first one.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from odradek.model import KafkaError, TopicPartition

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


def errors_of(results: Mapping[K, T | KafkaError]) -> dict[K, KafkaError]:
    """Return the results that are errors."""
    return {key: each for key, each in results.items() if isinstance(each, KafkaError)}
