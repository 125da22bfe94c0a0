"""`odradek transactions`: list, describe and abort transactions, and find hanging ones (KIP-664, KIP-939)."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import click

from odradek.cli import CommandGroup
from odradek.cli.common import admin, cluster_options, print_json, print_table, run, table_options
from odradek.cli.partition_lists import partitions_of_topics
from odradek.clients.admin.transactions import (
    NO_TIMEOUT_MS,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from odradek.model import KafkaError


@click.group(name="transactions", cls=CommandGroup)
def command() -> None:
    """List, describe and abort transactions; find those that no coordinator ends."""


@command.command(name="list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only in this state, as Ongoing; repeatable.")
@table_options
@cluster_options
def list_transactions(*, states: Sequence[str], as_json: bool) -> None:
    """List the transactional ids of the cluster, with their producers and states."""

    async def work() -> list[TransactionListing]:
        async with admin() as client:
            return await client.list_transactions(states=states)

    found = run(work())
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [(each.transactional_id, each.producer_id, each.state) for each in found]
    print_table(("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"), rows)


@command.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@table_options
@cluster_options
def describe(*, transactional_ids: Sequence[str], as_json: bool) -> None:
    """Show the last transaction of transactional ids: producer, state, timeout, start and partitions."""

    async def work() -> list[TransactionDescription]:
        async with admin() as client:
            return _without_errors((await client.describe_transactions(transactional_ids)).values())

    _print(run(work()), as_json=as_json)


@command.command()
@table_options
@cluster_options
def prepared(*, as_json: bool) -> None:
    """Show the open transactions of two-phase commit, which never expire (KIP-939).

    A coordinator does not know whether such a transaction is prepared already or its producer still writes. Its
    producer commits it, or `odradek transactions abort` ends it; until then no read_committed consumer passes it.
    """

    async def work() -> list[TransactionDescription]:
        async with admin() as client:
            ids = [each.transactional_id for each in await client.list_transactions(states=["Ongoing"])]
            described = (await client.describe_transactions(ids)).values()
            return [each for each in described if isinstance(each, TransactionDescription) and each.is_prepared]

    _print(run(work()), as_json=as_json)


@command.command()
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID")
@cluster_options
def abort(*, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, also a prepared one, and fence its producer."""

    async def work() -> str:
        async with admin() as client:
            (found,) = _without_errors((await client.describe_transactions([transactional_id])).values())
            await client.terminate_transaction(transactional_id)
            return found.state

    state = run(work())
    ended = "aborted its open transaction" if state == "Ongoing" else f"it had no open transaction ({state})"
    click.echo(f"{transactional_id}: {ended}; its producer is fenced")


@command.command(name="find-hanging")
@click.argument("topics", nargs=-1, metavar="[TOPIC[:N,N-N]...]")
@table_options
@cluster_options
def find_hanging(*, topics: Sequence[str], as_json: bool) -> None:
    """Find open transactions that no coordinator ends, in topics or partitions; in all topics by default.

    A read_committed consumer waits at such a transaction for ever. `odradek partitions abort-transaction` ends it.
    """

    async def work() -> list[HangingTransaction]:
        async with admin() as client:
            names = topics or [each.name for each in await client.list_topics(include_internal=True)]
            return await client.find_hanging_transactions(await partitions_of_topics(client, names))

    found = run(work())
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [
        (
            each.partition.topic, each.partition.partition, each.producer.producer_id, each.producer.producer_epoch,
            _time(each.producer.last_timestamp), each.producer.current_txn_start_offset,
            each.producer.coordinator_epoch,
        )
        for each in found
    ]  # fmt: skip
    names = ("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "LAST-RECORD", "START-OFFSET", "COORDINATOR-EPOCH")
    print_table(names, rows)


def _without_errors(described: Iterable[TransactionDescription | KafkaError]) -> list[TransactionDescription]:
    """Return the descriptions. Raises the first `KafkaError`."""
    found = []
    for each in described:
        if isinstance(each, KafkaError):
            raise each
        found.append(each)
    return found


def _print(found: Sequence[TransactionDescription], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [
        (
            each.transactional_id, each.state, None if each.start_ms is None else _time(each.start_ms),
            ", ".join(f"{topic}-{number}" for topic, number in each.partitions),
            "none" if each.timeout_ms == NO_TIMEOUT_MS else each.timeout_ms,
            each.producer_id, each.producer_epoch, each.coordinator_id,
        )
        for each in found
    ]  # fmt: skip
    names = ("TRANSACTIONAL-ID", "STATE", "STARTED", "TOPIC-PARTITIONS", "TIMEOUT-MS")
    print_table((*names, "PRODUCER-ID", "EPOCH", "COORDINATOR"), rows)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).isoformat(" ", "seconds")
