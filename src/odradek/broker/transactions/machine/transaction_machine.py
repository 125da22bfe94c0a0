"""The transaction coordinator's state machine: the transactional ids of one `__transaction_state` partition.

It implements `odradek.broker.coordinators.machine.Machine`. A transition is in force as soon as its record is appended,
and its reply waits for the commit, so requests in between need no CONCURRENT_TRANSACTIONS. They get it while markers
are being written. `SendMarkers` is reported when the record of the transaction's end is committed, again after an
election, and answered by `MarkersWrittenRequest`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from msgspec import Struct

from odradek.broker.coordinators.machine import CoordinatorResult, Now, Producer, Reply
from odradek.broker.transactions.machine.messages import (
    AddPartitionsRequest,
    DescribeTransactionRequest,
    EndTransactionRequest,
    InitProducerIdReply,
    InitProducerIdRequest,
    MarkersWrittenRequest,
    ProducerIdNeeded,
    ProducerInitialised,
    Request,
    SendMarkers,
    TransactionTimedOut,
    VerifyPartitionsRequest,
)
from odradek.broker.transactions.machine.transaction import (
    EPOCH_PER_TRANSACTION,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    is_exhausted,
)
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import probe, transition

_READS: Final = (VerifyPartitionsRequest, DescribeTransactionRequest)
_ID_BYTES: Final = 1024
"""Memory of a transactional id."""
_Result = CoordinatorResult[TransactionRecord]


class TransactionSettings(Struct, frozen=True, kw_only=True):
    """The broker's `transaction.*` settings, and the finalized `transaction.version`."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_interval_ms: int = 10_000
    removal_interval_ms: int = 3_600_000
    has_two_phase_commit: bool = False
    transaction_version: int = 2


class TransactionMachine:
    """The transactional ids of one partition."""

    def __init__(self, settings: Callable[[], TransactionSettings]) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self._settings = settings
        self._last_epochs: dict[str, int] = {}
        """The epoch that a producer had before its current one; no record has it, as in Kafka."""
        self._due: list[str] = []
        """Ids whose transactions have timed out, or which have expired, when the last check found them."""
        self._next_abort_ms: int | None = None
        self._next_removal_ms = 0
        self._handlers: Final[dict[type, Callable[[str, Any, object, Now], _Result]]] = {
            InitProducerIdRequest: self._initialise,
            AddPartitionsRequest: self._add_partitions,
            VerifyPartitionsRequest: self._verify_partitions,
            EndTransactionRequest: self._end,
            MarkersWrittenRequest: self._complete,
            DescribeTransactionRequest: self._describe,
        }

    @property
    def size_bytes(self) -> int:
        return len(self.transactions) * _ID_BYTES

    @property
    def next_deadline_ms(self) -> int | None:
        if self._next_abort_ms is None:
            return None
        return 0 if self._due else min(self._next_abort_ms, self._next_removal_ms)

    # -- durable state -------------------------------------------------------------------------------------------------

    def apply(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        del offset, producer_id
        if record.metadata is None:
            self.transactions.pop(record.transactional_id, None)
            self._last_epochs.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.metadata

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: the records of this topic belong to no transaction."""

    # -- election, images, failed appends, time ------------------------------------------------------------------------

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[_Result]:
        """Send the markers of ended transactions, which the former coordinator may not have sent."""
        del image
        settings = self._settings()
        self._next_abort_ms = now.ms + settings.abort_interval_ms
        self._next_removal_ms = now.ms + settings.removal_interval_ms
        for key, metadata in tuple(self.transactions.items()):
            if metadata.state.is_prepared:
                probe("transactions: a new coordinator sends the markers of an ended transaction")
                yield self.reset(key, now)

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[_Result]:
        del old, new, now
        yield from ()

    def reset(self, key: str, now: Now) -> _Result:
        del now
        self._last_epochs.pop(key, None)
        metadata = self.transactions.get(key)
        is_prepared = metadata is not None and metadata.state.is_prepared
        return CoordinatorResult(
            key=key, committed_events=(_markers(metadata),) if metadata is not None and is_prepared else ()
        )

    def expire(self, now: Now) -> _Result | None:
        if self._due:
            return self._expire_id(self._due.pop(), now)
        if self._next_abort_ms is None:
            return None
        settings = self._settings()
        if now.ms >= self._next_abort_ms:
            self._next_abort_ms = now.ms + settings.abort_interval_ms
            self._due = [key for key, each in self.transactions.items() if _has_timed_out(each, now)]
        elif now.ms >= self._next_removal_ms:
            self._next_removal_ms = now.ms + settings.removal_interval_ms
            oldest_ms = now.wall_ms - settings.id_expiration_ms
            self._due = [key for key, each in self.transactions.items() if _has_expired(each, oldest_ms)]
        else:
            return None
        return CoordinatorResult(key="")

    def _expire_id(self, key: str, now: Now) -> _Result:
        metadata = self.transactions.get(key)
        if metadata is not None and _has_timed_out(metadata, now):
            probe("transactions: a transaction times out")
            event = TransactionTimedOut(
                transactional_id=key, producer=metadata.producer, timeout_ms=metadata.timeout_ms
            )
            return self._fence(metadata, (), (event,), now)
        if metadata is not None and _has_expired(metadata, now.wall_ms - self._settings().id_expiration_ms):
            probe("transactions: a transactional id expires")
            transition("transaction", metadata.state.name, TransactionState.DEAD.name)
            return CoordinatorResult(key=key, records=(TransactionRecord(key, None),))
        return CoordinatorResult(key=key)

    # -- requests ------------------------------------------------------------------------------------------------------

    def is_read(self, request: Request) -> bool:
        return isinstance(request, _READS)

    def handle(self, key: str, request: Request, to: object, now: Now) -> _Result:
        try:
            return self._handlers[type(request)](key, request, to, now)
        except KafkaError as error:
            return _answer(key, to, error)

    def _initialise(self, key: str, request: InitProducerIdRequest, to: object, now: Now) -> _Result:
        if request.keep_prepared and request.producer is not None:
            raise KafkaError(ErrorCode.invalid_request, "a producer that recovers cannot keep a prepared transaction")
        timeout_ms = self._timeout_ms(request)
        known = self.transactions.get(key)
        if known is None:
            if request.new_producer_id < 0:
                return _answer(key, to, ProducerIdNeeded())
            new = TransactionMetadata(
                transactional_id=key,
                producer_id=request.new_producer_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                updated_ms=now.wall_ms,
            )
            return self._initialised(new, NO_EPOCH, to)
        if known.state.is_prepared:
            _refuse_concurrent(known)
        _check_expected(known, request.producer)
        if known.state is TransactionState.ONGOING:
            if request.keep_prepared:
                return self._keep(known, request, to, now)
            probe("transactions: a new producer aborts the open transaction")
            text = f"the transaction of {key!r} is being aborted, as a new producer replaces its producer; try again"
            refusal = Reply(to=to, value=KafkaError(ErrorCode.concurrent_transactions, text))
            return self._fence(known, (refusal,), (), now)
        producer, last_epoch = self._next_producer(known, request)
        if producer is None:
            return _answer(key, to, ProducerIdNeeded())
        return self._initialised(known.initialised(producer, timeout_ms, now.wall_ms), last_epoch, to)

    def _timeout_ms(self, request: InitProducerIdRequest) -> int:
        """Return the timeout of the producer's transactions. Raises `KafkaError` if it is not allowed."""
        settings = self._settings()
        if request.enable_two_phase_commit:
            if not settings.has_two_phase_commit:
                text = "two-phase commit is disabled: set transaction.two.phase.commit.enable=true on the brokers"
                raise KafkaError(ErrorCode.transactional_id_authorization_failed, text)
            return NO_TIMEOUT_MS
        if not 0 < request.timeout_ms <= settings.max_timeout_ms:
            text = f"the timeout of a transaction is 1 to {settings.max_timeout_ms} ms (transaction.max.timeout.ms)"
            raise KafkaError(ErrorCode.invalid_transaction_timeout, text)
        return request.timeout_ms

    def _next_producer(self, known: TransactionMetadata, request: InitProducerIdRequest) -> tuple[Producer | None, int]:
        """Return the producer after InitProducerId, None if it needs a new id, and the epoch that the client had.

        A client that repeats its request, because it got no response, gets the same epoch again (KIP-360).
        """
        current, expected = known.producer, request.producer
        if expected is not None and expected.epoch != current.epoch:
            last_epoch = self._last_epochs.get(known.transactional_id, NO_EPOCH)
            if expected.epoch != last_epoch:
                _refuse_fenced(known, expected)
            if current.epoch < MAX_EPOCH:  # the last epoch only fences, after a timeout: no producer gets it
                probe("transactions: InitProducerId is repeated after a lost response")
                return current, last_epoch
        last_epoch = NO_EPOCH if expected is None else expected.epoch
        if not is_exhausted(current.epoch):
            return Producer(producer_id=current.producer_id, epoch=current.epoch + 1), last_epoch
        if request.new_producer_id < 0:
            return None, last_epoch
        probe("transactions: the epochs of a producer id are used up")
        return Producer(producer_id=request.new_producer_id, epoch=0), last_epoch

    def _initialised(self, metadata: TransactionMetadata, last_epoch: int, to: object) -> _Result:
        key = metadata.transactional_id
        self._last_epochs[key] = last_epoch
        return CoordinatorResult(
            key=key,
            records=(TransactionRecord(key, metadata),),
            replies=(Reply(to=to, value=InitProducerIdReply(producer=metadata.producer)),),
            events=(ProducerInitialised(transactional_id=key, producer=metadata.producer),),
        )

    def _keep(self, known: TransactionMetadata, request: InitProducerIdRequest, to: object, now: Now) -> _Result:
        """Keep the ongoing transaction for a new producer, which has to end it (KIP-939)."""
        probe("transactions: a new producer keeps a prepared transaction")
        key, client = known.transactional_id, known.client
        client = Producer(producer_id=client.producer_id, epoch=client.epoch + 1)
        if is_exhausted(known.client.epoch):
            if request.new_producer_id < 0:
                return _answer(key, to, ProducerIdNeeded())
            client = Producer(producer_id=request.new_producer_id, epoch=0)
        self._last_epochs[key] = NO_EPOCH
        return CoordinatorResult(
            key=key,
            records=(TransactionRecord(key, known.kept_for(client, now.wall_ms)),),
            replies=(Reply(to=to, value=InitProducerIdReply(producer=client, ongoing=known.producer)),),
            events=(ProducerInitialised(transactional_id=key, producer=client),),
        )

    def _fence(
        self, known: TransactionMetadata, replies: tuple[Reply, ...], events: tuple[object, ...], now: Now
    ) -> _Result:
        """Abort the transaction with a bumped epoch, so that its producer is fenced."""
        key, version = known.transactional_id, self._settings().transaction_version
        fenced = known.fenced(version, now.wall_ms)
        self._last_epochs[key] = known.client.epoch if version >= EPOCH_PER_TRANSACTION else NO_EPOCH
        return _prepared(fenced, replies, events)

    def _add_partitions(self, key: str, request: AddPartitionsRequest, to: object, now: Now) -> _Result:
        known = self._known(key)
        _check_producer(known, request.producer)
        if known.state.is_prepared:
            _refuse_concurrent(known)
        if known.is_kept:
            text = f"{key!r} has kept a prepared transaction, which can only be committed or aborted"
            raise KafkaError(ErrorCode.invalid_txn_state, text)
        if known.state is TransactionState.ONGOING and request.partitions <= known.partitions:
            return _answer(key, to, None)
        added = known.with_partitions(request.partitions, request.transaction_version, now.wall_ms)
        return _answer(key, to, None, added)

    def _verify_partitions(self, key: str, request: VerifyPartitionsRequest, to: object, now: Now) -> _Result:
        del now
        known = self._known(key)
        _check_producer(known, request.producer)
        if known.state.is_prepared:
            _refuse_concurrent(known)
        return _answer(key, to, request.partitions & known.partitions)

    def _end(self, key: str, request: EndTransactionRequest, to: object, now: Now) -> _Result:
        """Commit or abort.

        With an epoch per transaction, an abort without a transaction is one too, as the client may not know whether
        the transaction has begun: it bumps the epoch.
        """
        known, version = self._known(key), request.transaction_version
        if known.state.is_prepared:
            _refuse_concurrent(known)
        bumps = version >= EPOCH_PER_TRANSACTION
        if known.state.is_idle and known.state is not TransactionState.EMPTY:
            is_repeated = _is_repeated_end(known, request.producer) if bumps else request.producer == known.client
            if is_repeated:
                if request.is_commit != (known.state is TransactionState.COMPLETE_COMMIT):
                    _refuse_state(known, request)
                probe("transactions: EndTxn is repeated after a lost response")
                if known.producer_epoch < MAX_EPOCH:
                    return _answer(key, to, known.client)
                # The last epoch has fenced the former producer. A producer that got it could never be fenced.
                if not bumps:
                    _refuse_fenced(known, request.producer)
                if request.new_producer_id < 0:
                    return _answer(key, to, ProducerIdNeeded())
                known = known.with_producer_id(request.new_producer_id)
                return _answer(key, to, known.client, known)
        _check_producer(known, request.producer)
        if known.state.is_idle and (request.is_commit or not bumps):
            _refuse_state(known, request)
        if bumps and is_exhausted(known.client.epoch) and request.new_producer_id < 0:
            probe("transactions: a transaction with the last epoch of a producer id ends")
            return _answer(key, to, ProducerIdNeeded())
        ended = known.ended(
            is_commit=request.is_commit,
            client_version=version,
            new_producer_id=request.new_producer_id,
            now_ms=now.wall_ms,
        )
        if bumps:
            self._last_epochs[key] = known.client.epoch
        return _prepared(ended, (Reply(to=to, value=ended.client),), ())

    def _complete(self, key: str, request: MarkersWrittenRequest, to: object, now: Now) -> _Result:
        known = self.transactions.get(key)
        if known is None or not known.state.is_prepared or known.producer != request.producer:
            return _answer(key, to, None)
        return _answer(key, to, None, known.completed(now.wall_ms))

    def _describe(self, key: str, request: DescribeTransactionRequest, to: object, now: Now) -> _Result:
        del request, now
        metadata = self.transactions.get(key)
        missing = KafkaError(ErrorCode.transactional_id_not_found, f"there is no transactional id {key!r}")
        return _answer(key, to, missing if metadata is None else metadata)

    def _known(self, key: str) -> TransactionMetadata:
        metadata = self.transactions.get(key)
        if metadata is None:
            text = f"the transactional id {key!r} has no producer: it has expired, or InitProducerId was not sent"
            raise KafkaError(ErrorCode.invalid_producer_id_mapping, text)
        return metadata


def _answer(key: str, to: object, value: object, changed: TransactionMetadata | None = None) -> _Result:
    records = () if changed is None else (TransactionRecord(key, changed),)
    return CoordinatorResult(key=key, records=records, replies=(Reply(to=to, value=value),))


def _prepared(ended: TransactionMetadata, replies: tuple[Reply, ...], events: tuple[object, ...]) -> _Result:
    """Return the result that records the end of a transaction, and sends the markers when that is committed."""
    key = ended.transactional_id
    return CoordinatorResult(
        key=key,
        records=(TransactionRecord(key, ended),),
        replies=replies,
        events=events,
        committed_events=(_markers(ended),),
    )


def _markers(ended: TransactionMetadata) -> SendMarkers:
    return SendMarkers(
        transactional_id=ended.transactional_id,
        producer=ended.producer,
        is_commit=ended.state is TransactionState.PREPARE_COMMIT,
        partitions=ended.partitions,
        transaction_version=ended.client_version,
    )


def _has_timed_out(metadata: TransactionMetadata, now: Now) -> bool:
    is_open = metadata.state is TransactionState.ONGOING and metadata.has_timeout
    return is_open and metadata.start_ms + metadata.timeout_ms < now.wall_ms


def _has_expired(metadata: TransactionMetadata, oldest_ms: int) -> bool:
    return metadata.state.is_idle and metadata.updated_ms <= oldest_ms


def _is_repeated_end(known: TransactionMetadata, producer: Producer) -> bool:
    """Return whether `producer` ended the last transaction, and has no response yet: its epoch is the one before."""
    if known.producer == Producer(producer_id=producer.producer_id, epoch=producer.epoch + 1):
        return True
    had_last_epoch = producer.producer_id == known.previous_producer_id and producer.epoch == MAX_EPOCH - 1
    return had_last_epoch and known.producer_epoch == 0 and known.previous_producer_id != NO_PRODUCER_ID


def _check_expected(known: TransactionMetadata, expected: Producer | None) -> None:
    """Raise PRODUCER_FENCED if the producer that recovers had another id, unless its epochs were used up."""
    if expected is None or expected.producer_id == known.client.producer_id:
        return
    if expected.producer_id != known.previous_producer_id or not is_exhausted(expected.epoch):
        _refuse_fenced(known, expected)


def _check_producer(known: TransactionMetadata, producer: Producer) -> None:
    client = known.client
    if producer.producer_id != client.producer_id:
        text = f"{known.transactional_id!r} has the producer id {client.producer_id}, not {producer.producer_id}"
        raise KafkaError(ErrorCode.invalid_producer_id_mapping, text)
    if producer.epoch != client.epoch:
        _refuse_fenced(known, producer)


def _refuse_fenced(known: TransactionMetadata, producer: Producer) -> NoReturn:
    probe("transactions: an old producer is fenced")
    text = (
        f"{known.transactional_id!r} is at epoch {known.client.epoch}, not {producer.epoch}: another producer uses it"
    )
    raise KafkaError(ErrorCode.producer_fenced, text)


def _refuse_concurrent(known: TransactionMetadata) -> NoReturn:
    probe("transactions: a request arrives while markers are written")
    text = f"the markers of {known.transactional_id!r} are being written ({known.state.text}); try again"
    raise KafkaError(ErrorCode.concurrent_transactions, text)


def _refuse_state(known: TransactionMetadata, request: EndTransactionRequest) -> NoReturn:
    wanted = "committed" if request.is_commit else "aborted"
    text = f"a transaction of {known.transactional_id!r} in the state {known.state.text} cannot be {wanted}"
    raise KafkaError(ErrorCode.invalid_txn_state, text)
