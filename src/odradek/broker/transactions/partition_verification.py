"""The verification of transactional appends (KIP-890): no batch is appended outside a transaction of its coordinator.

```
Produce 3 to 11, TxnOffsetCommit 0 to 4   verify that the client has added the partition
Produce 12, TxnOffsetCommit 5             add the partition
```
Only a transaction's first batch in a partition is verified. Its request waits, and its connection with it, in
`security.admission`; the log has the result (`broker.log.producers`), and refuses the batch if it was not verified.
Requests without a transactional id are not decoded here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.coordinators.machine import Producer
from odradek.broker.log.log import Log
from odradek.broker.log.producers.producer_state import Verification
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager, Errors
from odradek.model import Buffer, ErrorCode, KafkaError, TopicPartition
from odradek.model.names import INTERNAL_TOPICS
from odradek.model.probes import LATE_S, perturb
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from odradek.protocol.messages.produce import (
    FLEXIBLE_FROM,
    MOST_PRODUCE_ENTRIES,
    TOPIC_IDS_FROM,
    ProduceRequest,
    decode_produce_request,
)
from odradek.protocol.primitives import Meter
from odradek.runtime import Clock
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.security.context import RequestContext

ADDS_FROM: Final = 12
"""The first version of Produce that adds partitions to the transaction."""
_IDS_FROM: Final = 3
"""The first version of Produce that has a transactional id; earlier ones are refused."""
_ABORTABLE_FROM: Final = 11
_OFFSETS_ADD_FROM: Final = 5
_OFFSETS_ABORTABLE_FROM: Final = 4
_NULL: Final = {True: 0, False: 0xFF}
"""The first byte of a string that is null, by whether the version is flexible."""
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class PartitionVerification:
    """The verifications of one broker. `partitions` and `manager` are functions, as the broker makes them later."""

    apis: Final = frozenset({ApiKey.PRODUCE})

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        *,
        partitions: Callable[[], ReplicaManager],
        manager: Callable[[], AddPartitionsToTxnManager],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._partitions = partitions
        self._manager = manager

    # ---- Produce ------------------------------------------------------------------------------------------------

    def verify(self, context: "RequestContext", frame: memoryview) -> Coroutine[Any, Any, None] | None:
        version, offset = context.api_version, context.header.body_offset
        if version < _IDS_FROM or len(frame) <= offset or frame[offset] == _NULL[version >= FLEXIBLE_FROM]:
            return None
        adds, config = version >= ADDS_FROM, self._metadata.config
        if not adds and not config.transaction_partition_verification_enable:
            return None
        meter = Meter(min(config.most_request_entries, MOST_PRODUCE_ENTRIES))
        request = decode_produce_request(version, frame, offset, meter=meter)
        transactional_id = request.transactional_id
        if (
            not transactional_id
            or not -1 <= request.acks <= 1
            or not context.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id, quietly=True)
        ):
            return None
        logs: dict[TopicPartition, Log] = {}
        producers: set[Producer] = set()
        for key, log, header in self._batches(context, request):
            producer = Producer(producer_id=header.producer_id, epoch=header.producer_epoch)
            if log.producers.find(header) is None and self._begin(log, producer, adds=adds) is not None:
                logs[key] = log
                producers.add(producer)
        if len(producers) > 1:
            return _refused(
                ErrorCode.invalid_producer_id_mapping, "Transactional records contained more than one producer ID"
            )
        knows_abortable = version >= _ABORTABLE_FROM
        if not producers:
            context.session.verified = request, meter
            return None
        return self._verify_batches(transactional_id, producers.pop(), logs, adds=adds, knows_abortable=knows_abortable)

    def _batches(
        self, context: "RequestContext", request: ProduceRequest
    ) -> Iterator[tuple[TopicPartition, Log, BatchHeader]]:
        """Yield the transactional batches that the request may append on this broker."""
        image, partitions = self._metadata.image, self._partitions()
        for name, topic_id, batches in request.topics:
            topic = name if context.api_version < TOPIC_IDS_FROM else image.topic_names.get(topic_id)  # type: ignore[arg-type]
            if topic is None or topic in INTERNAL_TOPICS:
                continue
            if not context.allows(AclOperation.WRITE, ResourceType.TOPIC, topic, quietly=True):
                continue
            for number, records in batches:
                led = partitions.leader_or_none(topic, number)
                header = None if led is None else _transactional(records)
                if led is not None and header is not None:
                    yield led.topic_partition, led.log, header

    async def _verify_batches(
        self,
        transactional_id: str,
        producer: Producer,
        logs: Mapping[TopicPartition, Log],
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> None:
        """Wait for the coordinator's response, and store its errors in the verifications."""
        errors, begun = await self._add_or_verify(transactional_id, producer, logs, adds=adds)
        for key, verification in begun.items():
            error = _shown(errors.get(key, ErrorCode.network_exception), knows_abortable=knows_abortable)
            if error is ErrorCode.none:
                verification.is_verified = True
            elif error in _TRANSIENT or (error is ErrorCode.concurrent_transactions and not adds):
                text = f"Unable to verify the partition has been added to the transaction: {error.name.upper()}"
                verification.error = KafkaError(ErrorCode.not_enough_replicas, text)
            else:
                verification.error = KafkaError(
                    error, f"{key} was not added to the transaction of {transactional_id!r}"
                )
        if perturb("transactions: a verified batch is appended late"):
            await asyncio.sleep(LATE_S)

    async def _add_or_verify(
        self,
        transactional_id: str,
        producer: Producer,
        logs: Mapping[TopicPartition, Log],
        *,
        adds: bool,
    ) -> tuple[Errors, dict[TopicPartition, Verification]]:
        """Return the coordinator's errors, and the verifications that were begun before its response.

        An addition waits a little while the last transaction is being completed. Its marker voids a verification, so
        each attempt begins another, and an addition that the marker overtakes counts as concurrent.
        """
        config = self._metadata.config
        until_s = self._clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            next_s = self._clock.monotonic() + config.add_partitions_to_txn_retry_backoff_ms / 1000
            begun = {key: each for key, log in logs.items() if (each := self._begin(log, producer, adds=adds))}
            errors = dict(await self._manager().add_or_verify(transactional_id, producer, logs.keys(), adds=adds))
            is_overtaken = False
            for key, each in tuple(begun.items()) if adds else ():
                current = self._begin(logs[key], producer, adds=adds)
                if current is not None and current is not each:
                    begun[key], errors[key], is_overtaken = current, ErrorCode.concurrent_transactions, True
            is_concurrent = adds and ErrorCode.concurrent_transactions in errors.values()
            if not is_concurrent or self._clock.monotonic() >= until_s:
                return errors, begun
            if not is_overtaken:  # else the coordinator has added the partition, and answers at once
                await asyncio.sleep(max(next_s - self._clock.monotonic(), 0))  # the coordinator has waited, too

    def _begin(self, log: Log, producer: Producer, *, adds: bool) -> Verification | None:
        return log.producers.begin_verification(
            producer.producer_id, producer.epoch, self._clock.now_ms(), bumps_epoch=adds
        )

    # ---- TxnOffsetCommit ----------------------------------------------------------------------------------------

    async def verify_offsets(
        self, key: TopicPartition, transactional_id: str, producer: Producer, *, version: int
    ) -> ErrorCode:
        """Verify the partition `key` of `__consumer_offsets`, or add it to the transaction; return the error."""
        adds, led = version >= _OFFSETS_ADD_FROM, self._partitions().get(key)
        if led is None:
            return ErrorCode.not_coordinator
        begun = self._begin(led.log, producer, adds=adds)
        if begun is None:
            return ErrorCode.none
        if not adds and not self._metadata.config.transaction_partition_verification_enable:
            begun.is_verified = True
            return ErrorCode.none
        errors, verifications = await self._add_or_verify(transactional_id, producer, {key: led.log}, adds=adds)
        error = errors.get(key, ErrorCode.network_exception)
        for each in verifications.values():
            each.is_verified = error is ErrorCode.none
        if error is ErrorCode.network_exception:
            return ErrorCode.coordinator_load_in_progress  # which a client repeats without looking for a coordinator
        return _shown(error, knows_abortable=version >= _OFFSETS_ABORTABLE_FROM)


def _transactional(records: Buffer | None) -> BatchHeader | None:
    """Return the header of a transactional batch, None for other and malformed ones."""
    if not records or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.magic == MAGIC and header.is_transactional and header.producer_id >= 0 else None


def _shown(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return a coordinator's error as producers expect it."""
    if error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error is ErrorCode.transaction_abortable and not knows_abortable:
        return ErrorCode.invalid_txn_state
    return error


async def _refused(error: ErrorCode, text: str) -> None:
    raise KafkaError(error, text)
