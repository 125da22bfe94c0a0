"""The interface between a coordinator's state machine and the runtime that keeps its records.

A coordinator owns one partition of an internal topic. Its machine decides: requests, time and images go in, and a
`CoordinatorResult` comes out. The runtime (`odradek.broker.coordinators`) appends the result's records as one batch,
applies each of them, and sends the replies when everything that they may have seen is committed.

**Durable state changes in `apply` and `end_transaction` only**, and these are called alike for a record that was just
appended and for one that is read when the coordinator loads. Whatever else a machine keeps, such as sessions and
waiting requests, is lost when another broker becomes coordinator, or when records could not be written.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.metadata.image import ClusterImage
from odradek.model.values import dataclass

NO_PRODUCER: Final = -1


class Now(NamedTuple):
    """The time of a decision."""

    ms: int
    """Monotonic, for deadlines; it stands still while nothing can be written."""
    wall_ms: int
    """Since 1970, for records."""


RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The transactional producer in whose transaction records are written."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the request that was handled with `to`. A `KafkaError` as `value` is raised to the caller."""

    to: object
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorResult(Generic[RecordT]):
    """The result of a decision: records to append as one atomic batch, and replies that depend on them.

    It concerns one `key`, such as a group id. `producer` is set if the records belong to a transaction: they are
    pending then until its marker is written. `events` say what happened, for logs, metrics and journals.
    """

    key: str
    records: Sequence[RecordT] = ()
    replies: Sequence[Reply] = ()
    producer: Producer | None = None
    events: Sequence[object] = ()
    is_atomic: bool = True
    """Whether the records must not be spread over several batches, even if one would be too large."""
    is_only_records: bool = False
    """Whether nothing but durable state changes, so that the key needs no reset if the records cannot be appended."""


class Machine(Protocol[RequestT_contra, RecordT]):
    """The state machine of one coordinator.

    Methods that return results must not change durable state. A result's records are applied before any other call.
    """

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when to call `expire` at the latest; it may find nothing to do then."""

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory that the state of clients takes, in bytes."""

    def handle(self, key: str, request: RequestT_contra, to: object, now: Now) -> CoordinatorResult[RecordT]:
        """Decide on a request for `key`. Its reply is in this result or in a later one of that key."""

    def is_read(self, request: RequestT_contra) -> bool:
        """Return whether a request never needs a record, so that it can be handled while none can be appended."""

    def expire(self, now: Now) -> CoordinatorResult[RecordT] | None:
        """Decide on one deadline that is due; None if there is none."""

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[CoordinatorResult[RecordT]]:
        """Decide, key by key, what follows when all records have been applied, before the first request."""

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[CoordinatorResult[RecordT]]:
        """Decide, key by key, on changes of topics and brokers."""

    def reset(self, key: str, now: Now) -> CoordinatorResult[RecordT]:
        """Discard the state of `key` that is not durable, and decide as after loading.

        The last result of the key was not appended. The caller has answered its waiting requests.
        """

    def apply(self, record: RecordT, offset: int, producer_id: int) -> None:
        """Change durable state by a record, which may be part of an open transaction (`NO_PRODUCER` if not)."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Change durable state by the marker that ends a producer's transaction."""


class RecordCodec(Protocol[RecordT]):
    """The bytes of a machine's records in its topic."""

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """Return key and value; a value of None is a tombstone."""

    def decode(self, key: bytes | None, value: bytes | None) -> RecordT | None:
        """Return the record, or None for a type that this release does not know. Raises `MalformedMessageError`."""


def partition_for(key: str, partition_count: int) -> int:
    """Return a key's partition of the topic: Java's `abs(key.hashCode()) % count`."""
    return _java_hash(key) % partition_count


@lru_cache(maxsize=4096)
def _java_hash(key: str) -> int:
    """Return Java's `abs(key.hashCode())`; 0 for `Integer.MIN_VALUE`, as Kafka does."""
    utf16 = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code
