"""The interface between a coordinator's state machine and the runtime that stores its records.

A coordinator owns one partition of an internal topic. Its `Machine` takes requests, time and images, and returns a
`CoordinatorResult`. The runtime (`odradek.broker.coordinators`) appends the result's records as one batch, applies
each, and sends the replies when all records appended so far are committed.

**Durable state changes in `apply` and `end_transaction` only**, which are called both for new records and for records
read when the coordinator loads. Other state, such as sessions and waiting requests, is lost when another broker becomes
coordinator, or when records could not be written.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from odradek.metadata.image import ClusterImage

NO_PRODUCER: Final = -1


class Now(NamedTuple):
    """The time at which a `Machine` is called."""

    ms: int
    """Monotonic, for deadlines; it stands still while no records can be appended."""
    wall_ms: int
    """Wall clock, since 1970, for records."""


RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


class Producer(Struct, frozen=True, kw_only=True):
    """The producer of the transaction that records belong to."""

    producer_id: int
    epoch: int


class Reply(Struct, frozen=True, kw_only=True):
    """The reply to the request that `handle` got with `to`. If `value` is a `KafkaError`, the request fails with it.

    The runtime's own replies to `None` are the events to report when the records before them are committed.
    """

    to: object | None
    value: object


class CoordinatorResult(Struct, Generic[RecordT], frozen=True, kw_only=True):
    """Records to append for one `key`, such as a group id, and replies to send when they are committed.

    If the records belong to a transaction, `producer` is set, and they are pending until the transaction's marker.
    `events` report what happened, for logs, metrics and journals. `committed_events` are reported when the records are
    committed, for what may be done only then; another coordinator may have to do it again.
    """

    key: str
    records: Sequence[RecordT] = ()
    replies: Sequence[Reply] = ()
    producer: Producer | None = None
    needs_verification: bool = False
    """Whether the partition must have been verified to be in the transaction (`broker.log.producers`)."""
    events: Sequence[object] = ()
    committed_events: Sequence[object] = ()
    is_atomic: bool = True
    """Whether the records must be in one batch, even if it would be too large."""
    is_continued: bool = False
    """Whether `on_image` yields another result of the key after this one."""
    is_only_records: bool = False
    """Whether only the records change state, so that the key needs no `reset` if they cannot be appended."""


class Machine(Protocol[RequestT_contra, RecordT]):
    """The state machine of one coordinator.

    Methods that return results must not change durable state. A result's records are applied before any other call.
    """

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which to call `expire`, which may do nothing; None if there is no deadline."""

    @property
    def size_bytes(self) -> int:
        """Return the approximate memory of the clients' state, in bytes."""

    def handle(self, key: str, request: RequestT_contra, to: object, now: Now) -> CoordinatorResult[RecordT]:
        """Handle a request for `key`. The `Reply` to `to` is in this result or in a later one of that key."""

    def is_read(self, request: RequestT_contra) -> bool:
        """Return whether a request never writes records, and so can be handled while none can be appended."""

    def expire(self, now: Now) -> CoordinatorResult[RecordT] | None:
        """Handle one deadline that has passed; return None if none has."""

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[CoordinatorResult[RecordT]]:
        """Yield a result per key that needs one, after all records are loaded and before the first request."""

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[CoordinatorResult[RecordT]]:
        """Yield results for each key that changes of topics and brokers affect.

        Requests may be handled between them. All but the last of a key are `is_continued`.
        """

    def reset(self, key: str, now: Now) -> CoordinatorResult[RecordT]:
        """Discard the state of `key` that is not durable, and return a result as after loading.

        Called when `handle` raised or the key's last result could not be appended; the key's waiting requests have
        failed.
        """

    def apply(self, record: RecordT, offset: int, producer_id: int) -> None:
        """Apply a record to durable state; `producer_id` is that of its open transaction, or `NO_PRODUCER`."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a producer's transaction to durable state."""


class RecordCodec(Protocol[RecordT]):
    """Encodes and decodes a machine's records."""

    def encode(self, record: RecordT) -> tuple[bytes, bytes | None]:
        """Return key and value; a value of None is a tombstone."""

    def decode(self, key: bytes | None, value: bytes | None) -> RecordT | None:
        """Return the record, or None for an unknown type. Raises `MalformedMessageError` for invalid bytes."""
