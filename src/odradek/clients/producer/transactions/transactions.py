"""`Transactions`, what `Producer` calls, and `Transaction`, the block of `Producer.transaction()`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

from odradek.clients.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.transactions.coordinator_requests import CoordinatorRequests
from odradek.clients.producer.transactions.errors import TransactionAbortedError
from odradek.clients.producer.transactions.machine import FORGOTTEN, TransactionEvent, TransactionState
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError, explained
from odradek.runtime import Clock

_log = logging.getLogger("odradek.clients")


class Transactions:
    """The transactions of one producer, one after the other; `flush` waits for its batches."""

    def __init__(
        self, sender: Sender, requests: CoordinatorRequests, clock: Clock, flush: Callable[[], Awaitable[None]]
    ) -> None:
        self.machine = requests.machine
        self._sender = sender
        self._requests = requests
        self._clock = clock
        self._flush = flush
        self._one_call = asyncio.Lock()

    async def initialize(self) -> None:
        """Get the producer id and fence earlier producers; their open transaction is aborted, or kept if prepared."""
        machine, name = self.machine, self.machine.transactional_id
        machine.step(TransactionEvent.INITIALIZE)
        try:
            prepared = await self._requests.init_producer_id()
        except BaseException as error:
            machine.step(TransactionEvent.GIVE_UP)
            if not isinstance(error, KafkaError):
                raise
            why = {
                ErrorCode.invalid_transaction_timeout: "transaction_timeout_ms is over the brokers' "
                "transaction.max.timeout.ms",
                ErrorCode.transactional_id_authorization_failed: "the user may not WRITE with this id; two-phase "
                "commit also needs TWO_PHASE_COMMIT, and transaction.two.phase.commit.enable on the brokers",
            }.get(error.code)
            raise (
                KafkaError(error.code, f"transactional id {name!r}: {explained(error.code, why)}") if why else error
            ) from None
        machine.initialized(prepared, uses_version_2=self._requests.uses_version_2)

    async def begin(self) -> None:
        """Begin a transaction, with the protocol that the cluster uses now."""
        self.machine.begin(self._clock.monotonic(), uses_version_2=self._requests.uses_version_2)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets with the transaction; an error that is not retriable makes it abortable."""
        async with self._one_call:
            self.machine.check_open()
            if not offsets:
                return
            try:
                await self._requests.send_offsets(offsets, group)
            except OdradekError as error:
                if error.retriable:
                    raise
                self._sender.coordinator_failed(error)
                self.machine.raise_error()

    async def prepare(self) -> PreparedTransaction:
        """Flush, and return the name of the transaction, which only `complete`, `commit` and `abort` end."""
        async with self._one_call:
            self.machine.check_open()
            await self._flush()
            prepared = PreparedTransaction(*self._requests.identity)
            self.machine.prepare(prepared)
            return prepared

    async def complete(self, state: PreparedTransaction | None) -> bool:
        """Commit the prepared transaction if it is `state`, else abort it; return whether it was committed."""
        if self.machine.state is TransactionState.READY:
            return False
        if self.machine.prepared is None:
            self.machine.raise_error()
            raise KafkaError(
                ErrorCode.invalid_txn_state, "complete: the transaction is not prepared: call prepare first"
            )
        is_same = self.machine.prepared == state
        await (self.commit() if is_same else self.abort())
        return is_same

    async def commit(self) -> None:
        async with self._one_call:
            self.machine.step(TransactionEvent.COMMIT)
            await self._flush()
            self.machine.raise_error()
            await self._end(committed=True)

    async def abort(self) -> None:
        """Drop batches that are not in flight, wait for those that are, and abort."""
        async with self._one_call:
            self.machine.step(TransactionEvent.ABORT)
            self._sender.abort_undrained(TransactionAbortedError(self.machine.transactional_id))
            await self._flush()
            await self._sender.partitions_added()
            await self._end(committed=False)

    async def close(self) -> None:
        """Abort an open transaction, unless it is prepared."""
        if self.machine.state in {TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR}:
            try:
                await self.abort()
            except OdradekError as error:
                _log.warning("Failed to abort the transaction of a producer that is closed: %s", error)

    async def _end(self, *, committed: bool) -> None:
        machine = self.machine
        try:
            if machine.is_started:
                is_forgotten = False
                try:
                    await self._requests.end_transaction(committed=committed)
                except KafkaError as error:
                    is_forgotten = not committed and error.code in FORGOTTEN
                    if not is_forgotten:
                        raise
                machine.ended(is_forgotten=is_forgotten)
            if machine.must_initialize:
                await self._requests.init_producer_id()
        except OdradekError as error:
            if error.retriable:
                raise UnavailableError(
                    f"{'the commit' if committed else 'the abort'} of {machine.transactional_id!r} is not confirmed: "
                    f"{error}; call {'commit' if committed else 'abort'}_transaction again"
                ) from error
            self._sender.coordinator_failed(error, is_end=True)
            machine.raise_error()
            raise
        machine.completed()


class Transaction:
    """The block of `Producer.transaction()`: commit at its end; abort if it raises, unless it is prepared."""

    def __init__(self, transactions: Callable[[], Transactions]) -> None:
        self._running = transactions

    async def __aenter__(self) -> None:
        await self._running().begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        transactions = self._running()
        state = transactions.machine.state
        if error is None:
            if state is not TransactionState.READY:  # the block may have ended its transaction itself
                await self._commit(transactions)
        elif state in {TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR}:
            try:
                await transactions.abort()
            except OdradekError as failure:
                _log.warning("Failed to abort a transaction after an error in its block: %s", failure)

    async def _commit(self, transactions: Transactions) -> None:
        try:
            await transactions.commit()
        except TransactionAbortedError:
            await transactions.abort()
            raise
