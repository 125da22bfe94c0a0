"""The metadata of one transactional id, as its record has it, and each transition as a new value.

A producer id has the epochs 0 to 32,766; 32,767 is left to fence its last producer. A producer whose epochs are used up
gets a new id. If a new producer keeps a prepared transaction (KIP-939), `producer` remains that of the transaction, and
`next_producer_id` and `next_producer_epoch` are those of the new producer, which may only end the transaction.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.coordinators.machine import Producer
from odradek.model import TopicPartition
from odradek.model.names import numbers_by_topic
from odradek.model.probes import transition
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.record_types import UnknownKey
from odradek.protocol.internal_records.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)


class TransactionState(IntEnum):
    """The state of a transactional id, with Kafka's numbers and names.

    ```
                first partition            EndTxn                     all markers are written
       EMPTY ───────────────────▶ ONGOING ───────▶ PREPARE_COMMIT ──────────────────────────▶ COMPLETE_COMMIT
                                     │    ───────▶ PREPARE_ABORT  ──────────────────────────▶ COMPLETE_ABORT
             time-out, InitProducerId│                  ▲
                                     └▶ PREPARE_EPOCH_FENCE        COMPLETE_*: the next transaction's first partition
    ```
    `PREPARE_EPOCH_FENCE` and `DEAD` are never recorded: the first becomes `PREPARE_ABORT` in the same record, and the
    second is a tombstone.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The state's name in responses, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction has ended and its markers are not written yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction, so that the transactional id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_S = TransactionState
_FROM_IDLE: Final = frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD})
TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: _FROM_IDLE,
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: _FROM_IDLE,
    _S.COMPLETE_ABORT: _FROM_IDLE,
    _S.DEAD: frozenset(),
}
"""The states that may follow each state."""
RECORDED: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}
"""The states that a record may have."""


NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 2**15 - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a producer with two-phase commit: its transactions never time out."""
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version from which each EndTxn bumps the epoch (KIP-890)."""


def is_exhausted(epoch: int) -> bool:
    """Return whether no producer may get a later epoch of the same producer id."""
    return epoch >= MAX_EPOCH - 1


def _bumped(epoch: int) -> int:
    """Return the next epoch. Records of Kafka 4.0 to 4.2 may have the last one already, which stays."""
    return min(epoch + 1, MAX_EPOCH)


class TransactionMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of one transactional id; times are in ms since 1970, `NO_TIME` before the first partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after this transaction, if it changes."""
    next_producer_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int
    client_version: int = 0
    """The transaction version of the client that caused the last transition."""

    @property
    def producer(self) -> Producer:
        """The producer of the transaction, which is in its markers."""
        return Producer(producer_id=self.producer_id, epoch=self.producer_epoch)

    @property
    def client(self) -> Producer:
        """The producer id and epoch that the client has, or gets when the transaction has ended."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return Producer(producer_id=self.next_producer_id, epoch=max(self.next_producer_epoch, 0))

    @property
    def is_kept(self) -> bool:
        """Whether the transaction is one that a former producer prepared."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != NO_TIMEOUT_MS

    # -- transitions ---------------------------------------------------------------------------------------------------

    def _to(self, state: TransactionState, now_ms: int) -> "TransactionMetadata":
        assert state in TRANSITIONS[self.state], f"{self.transactional_id} may not go from {self.state} to {state}"
        transition("transaction", self.state.name, state.name)
        return replace(
            self, state=state, updated_ms=max(now_ms, self.updated_ms), previous_producer_id=self.producer_id
        )

    def initialised(self, producer: Producer, timeout_ms: int, now_ms: int) -> "TransactionMetadata":
        """Return the metadata for a new producer or epoch, without a transaction."""
        return replace(
            self._to(TransactionState.EMPTY, now_ms),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def with_partitions(
        self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the transaction with more partitions; the first ones begin it."""
        return replace(
            self._to(TransactionState.ONGOING, now_ms),
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=client_version,
        )

    def kept_for(self, client: Producer, now_ms: int) -> "TransactionMetadata":
        """Return the ongoing transaction, which `client` may end."""
        kept = self._to(TransactionState.ONGOING, now_ms)
        return replace(kept, next_producer_id=client.producer_id, next_producer_epoch=client.epoch)

    def ended(
        self, *, is_commit: bool, client_version: int, new_producer_id: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the transaction whose markers are to be written, also if it has no partitions.

        From `EPOCH_PER_TRANSACTION` on, the epoch is bumped. `new_producer_id` is needed if the client's is used up.
        """
        ended = replace(
            self._to(TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT, now_ms),
            previous_producer_id=self.client.producer_id,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=self._version(client_version),
        )
        if client_version < EPOCH_PER_TRANSACTION:
            return ended
        ended = replace(ended, producer_epoch=_bumped(self.producer_epoch))
        if is_exhausted(self.client.epoch):
            assert new_producer_id >= 0
            return replace(ended, next_producer_id=new_producer_id, next_producer_epoch=NO_EPOCH)
        return replace(ended, next_producer_epoch=self.next_producer_epoch + 1) if self.is_kept else ended

    def fenced(self, client_version: int, now_ms: int) -> "TransactionMetadata":
        """Return the aborted transaction of a producer that is fenced: its epoch is bumped in any version."""
        fencing = replace(
            self._to(TransactionState.PREPARE_EPOCH_FENCE, now_ms),
            producer_epoch=_bumped(self.producer_epoch),
            client_version=self._version(client_version),
        )
        if self.is_kept:
            fencing = replace(fencing, next_producer_epoch=_bumped(self.next_producer_epoch))
        return replace(fencing._to(TransactionState.PREPARE_ABORT, now_ms), previous_producer_id=self.producer_id)

    def _version(self, client_version: int) -> int:
        """Return the transaction version of the markers.

        The last epoch is not bumped, and partitions accept a marker with an unchanged epoch only below version 2.
        """
        return client_version if self.producer_epoch < MAX_EPOCH else min(client_version, EPOCH_PER_TRANSACTION - 1)

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Return the metadata after all markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        completed = self._to(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT, now_ms)
        return replace(
            completed,
            producer_id=self.client.producer_id,
            producer_epoch=self.client.epoch,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            partitions=frozenset(),
        )

    def with_producer_id(self, producer_id: int) -> "TransactionMetadata":
        """Return the metadata for a client that goes on, after its transaction has ended, with a new producer id."""
        return replace(self, producer_id=producer_id, producer_epoch=0, previous_producer_id=self.producer_id)


class TransactionRecord(NamedTuple):
    """The metadata of a transactional id; None deletes the id."""

    transactional_id: str
    metadata: TransactionMetadata | None


class TransactionRecordCodec:
    """Encodes and decodes keys and values, in the version that Kafka writes."""

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        metadata = record.metadata
        return TRANSACTION_RECORDS.encode(
            TransactionLogKey(transactional_id=record.transactional_id), None if metadata is None else _value(metadata)
        )

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionRecord | None:
        if key is None:
            return None
        known, decoded = TRANSACTION_RECORDS.decode(key, value)
        if isinstance(known, UnknownKey):
            return None
        transactional_id: str = known.transactional_id
        return TransactionRecord(transactional_id, None if decoded is None else _metadata(transactional_id, decoded))


def _value(metadata: TransactionMetadata) -> TransactionLogValue:
    topics = numbers_by_topic(metadata.partitions)
    partitions = tuple(PartitionsSchema(topic=topic, partition_ids=tuple(some)) for topic, some in topics.items())
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        next_producer_epoch=metadata.next_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )


def _metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    if value.transaction_status not in RECORDED:
        raise MalformedMessageError(f"{transactional_id!r} has the unknown status {value.transaction_status}")
    if value.producer_id < 0 or value.producer_epoch < 0:
        raise MalformedMessageError(f"{transactional_id!r} has no producer id or no epoch")
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
