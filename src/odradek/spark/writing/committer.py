"""The driver's part of an exactly-once write: it decides which transactions of tasks are committed, and ends them.

    tasks     prepare transactions ─▶ driver: PREFIX-driver fences earlier drivers, reads the last decision
    decide    all transactions of the batch are still open: the decision is committed to the group PREFIX
    complete  EndTxn (commit) for each; then EndTxn (abort) for other open transactions of the prefix

A crash before the decision leaves nothing visible; after it, the next start with the prefix completes it. A driver that
has been replaced cannot decide: its producer is fenced, or it finds the batch decided. EndTxn names the epoch of a
transaction, so a late one does not end another.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from odradek.clients import Producer
from odradek.clients.admin.transactions import (
    TransactionDescription,
    describe_transactions,
    end_prepared_transactions,
    list_transactions,
)
from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import ConsumerGroupMetadata, fetch_group_offsets
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.clients.settings import ClientSettings, make_settings
from odradek.model import ErrorCode, KafkaError, OdradekError
from odradek.runtime import system_runtime
from odradek.spark.options import WriteOptions
from odradek.spark.settings import shared_keywords
from odradek.spark.writing.decision import Decision, WriteId, is_of_prefix, last_decision

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Decisions are stored as offsets of its partitions if rows name their topics."""
_DRIVER_TIMEOUT_MS: Final = 10_000
"""A decision that a dead driver left open blocks reading the decision for this time."""
_DECIDED_WITHIN: Final = 0.9
"""The part of a transaction's timeout in which it may be decided; in the rest, brokers could abort it meanwhile."""
_COMMITTED: Final = {"PrepareCommit", "CompleteCommit"}


class LostTransactionError(OdradekError):
    """A transaction of a task was aborted before it was committed."""


async def decided_write(options: WriteOptions) -> WriteId | None:
    """Complete the last decision of the prefix, and return its write."""
    async with _cluster(options) as cluster:
        decision = await _completed(cluster, _prefix(options))
    return None if decision is None else decision.write


async def commit(options: WriteOptions, write: WriteId | None, prepared: Mapping[str, PreparedTransaction]) -> None:
    """Decide and complete a write whose tasks have `prepared` transactions; without any, complete the last decision.

    Raise `OdradekError` if another driver has decided this batch, or a transaction was aborted.
    """
    prefix = _prefix(options)
    async with _cluster(options) as cluster, _driver(options) as driver:
        last = await _completed(cluster, prefix)
        if write is not None and prepared and is_decided(write, None if last is None else last.write):
            raise OdradekError(
                f"batch {write.batch} of this query was committed by another driver with the transactionalIdPrefix "
                f"{prefix!r}: this one writes nothing"
            )
        others = await _open_transactions(cluster, prefix)
        if write is not None and prepared:
            number = 1 if last is None else last.number + 1
            decision = Decision(number=number, write=write, prepared=prepared)
            wanted = decision.by_transactional_id(prefix)
            check_open(await describe_transactions(cluster, wanted), wanted, system_runtime().clock.now_ms())
            others = {key: each for key, each in others.items() if key not in wanted}
            await _decide(driver, options, decision)
            await _complete(cluster, prefix, decision)
        await end_prepared_transactions(cluster, others, committed=False)


async def abort(options: WriteOptions, write: WriteId | None, prepared: Mapping[str, PreparedTransaction]) -> None:
    """Abort the transactions of a write. Those that are decided are completed first, and then stay committed."""
    prefix = _prefix(options)
    if write is None:
        return
    async with _cluster(options) as cluster, _driver(options):
        await _completed(cluster, prefix)
        found = {write.transactional_id(prefix, task): each for task, each in prepared.items()}
        run = f"{prefix}-{write.run}-"
        found |= {key: each for key, each in (await _open_transactions(cluster, prefix)).items() if key.startswith(run)}
        await end_prepared_transactions(cluster, found, committed=False)


def check_open(
    found: Mapping[str, TransactionDescription | KafkaError], wanted: Mapping[str, PreparedTransaction], now_ms: int
) -> None:
    """Raise `LostTransactionError` if a transaction is not open any more, or may be aborted before it is committed.

    A transaction's age is `now_ms`, by the driver's clock, minus its start by the coordinator's clock. If the driver's
    clock is ahead, a batch is refused too early, and writes nothing. If it is behind by more than a tenth of the
    timeout, the decision may come too late; if brokers abort the transaction meanwhile, `_complete` reports the missing
    rows.
    """
    for key, name in wanted.items():
        each = found[key]
        if isinstance(each, KafkaError) or each.state != "Ongoing" or _name(each) != name:
            raise LostTransactionError(
                f"the transaction of {key!r} was aborted before its batch was committed: the batch writes nothing. "
                "Without two-phase commit, brokers abort it after kafka.transaction.timeout.ms; another query with "
                "the same transactionalIdPrefix aborts it, too"
            )
        age_ms = 0 if each.start_ms is None else now_ms - each.start_ms
        if not each.is_prepared and age_ms > each.timeout_ms * _DECIDED_WITHIN:
            raise LostTransactionError(
                f"the transaction of {key!r} is {age_ms / 1000:.0f} s old by this machine's clock, and brokers abort "
                f"it after {each.timeout_ms / 1000:.0f} s: too late to commit its batch, which writes nothing. Write "
                "less in a batch (maxOffsetsPerTrigger), or raise kafka.transaction.timeout.ms up to the brokers' "
                "transaction.max.timeout.ms"
            )


def is_decided(write: WriteId, decided: WriteId | None) -> bool:
    """Return whether a batch of a query was decided, maybe in another run."""
    return decided is not None and write.query == decided.query and write.batch <= decided.batch


async def _decide(driver: Producer, options: WriteOptions, decision: Decision) -> None:
    topic = options.topic or OFFSETS_TOPIC
    offsets = decision.offsets(topic, await driver.partitions_for(topic))
    async with driver.transaction():
        await driver.send_offsets(offsets, ConsumerGroupMetadata(group_id=_prefix(options)))


async def _completed(cluster: Cluster, prefix: str) -> Decision | None:
    decision = last_decision(prefix, await fetch_group_offsets(cluster, prefix))
    if decision is not None:
        await _complete(cluster, prefix, decision)
    return decision


async def _complete(cluster: Cluster, prefix: str, decision: Decision) -> None:
    """Commit the transactions that are still open. Raise `LostTransactionError` if one was aborted."""
    wanted = decision.by_transactional_id(prefix)
    still_open = {}
    for key, found in (await describe_transactions(cluster, wanted)).items():
        if isinstance(found, KafkaError):
            # The coordinator removes ids a week after their last transaction has ended.
            if found.code != ErrorCode.transactional_id_not_found:
                raise found
        elif found.state == "Ongoing" and _name(found) == wanted[key]:
            still_open[key] = wanted[key]
        elif found.state not in _COMMITTED:
            raise _lost(prefix, decision, key, found.state)
    for key, error in (await end_prepared_transactions(cluster, still_open, committed=True)).items():
        if error is not None:
            raise _lost(prefix, decision, key, str(error)) from error


def _lost(prefix: str, decision: Decision, transactional_id: str, why: str) -> OdradekError:
    return LostTransactionError(
        f"the transaction of {transactional_id!r} was not committed with batch {decision.write.batch} ({why}): its "
        f"rows are missing. To go on without them, delete the consumer group {prefix!r}"
    )


async def _open_transactions(cluster: Cluster, prefix: str) -> dict[str, PreparedTransaction]:
    listed = await list_transactions(cluster, states=["Ongoing"])
    ids = [each.transactional_id for each in listed if is_of_prefix(prefix, each.transactional_id)]
    described = await describe_transactions(cluster, ids)
    return {
        key: _name(found)
        for key, found in described.items()
        if isinstance(found, TransactionDescription) and found.state == "Ongoing"
    }


def _name(found: TransactionDescription) -> PreparedTransaction:
    return PreparedTransaction(found.producer_id, found.producer_epoch)


def _prefix(options: WriteOptions) -> str:
    assert options.transactional_id_prefix is not None
    return options.transactional_id_prefix


def _driver(options: WriteOptions) -> Producer:
    keywords: dict[str, Any] = shared_keywords(options.bootstrap_servers, options.client)
    name = f"{_prefix(options)}-driver"
    return Producer(transactional_id=name, transaction_timeout_ms=_DRIVER_TIMEOUT_MS, **keywords)


@asynccontextmanager
async def _cluster(options: WriteOptions) -> AsyncIterator[Cluster]:
    settings = make_settings(ClientSettings, shared_keywords(options.bootstrap_servers, options.client))
    cluster = Cluster(settings, system_runtime())
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()
