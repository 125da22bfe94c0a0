"""`odradek transactions`: list, describe and abort transactions, and find hanging ones (KIP-664, KIP-939)."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import click

from odradek.broker.transactions.machine.transaction import TransactionState
from odradek.cli import CommandGroup
from odradek.cli.common import cluster_options, print_listing, say, table_options, with_admin
from odradek.cli.partition_lists import TOPICS, partitions_of_topics
from odradek.clients import Admin
from odradek.clients.admin.transactions import NO_TIMEOUT_MS, HangingTransaction, TransactionDescription
from odradek.model import KafkaError


@click.group(name="transactions", cls=CommandGroup)
def command() -> None:
    """List, describe and abort transactions; find those that no coordinator ends."""


@command.command(name="list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only in this state, as Ongoing; repeatable.",
    type=click.Choice([each.text for each in TransactionState], case_sensitive=False),
)  # fmt: skip
@table_options
@cluster_options
def list_transactions(*, states: Sequence[str], as_json: bool) -> None:
    """List the transactional ids of the cluster, with their producers and states."""
    print_listing(
        with_admin(lambda client: client.list_transactions(states=states)),
        ("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"),
        lambda each: (each.transactional_id, each.producer_id, each.state),
        as_json=as_json,
    )


@command.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@table_options
@cluster_options
def describe(*, transactional_ids: Sequence[str], as_json: bool) -> None:
    """Show the last transaction of transactional ids: producer, state, timeout, start and partitions."""

    async def work(client: Admin) -> list[TransactionDescription]:
        return _without_errors((await client.describe_transactions(transactional_ids)).values())

    _print(with_admin(work), as_json=as_json)


@command.command()
@table_options
@cluster_options
def prepared(*, as_json: bool) -> None:
    """Show the open transactions of two-phase commit, which never expire (KIP-939).

    A coordinator does not know whether such a transaction is prepared already or its producer still writes. Its
    producer commits it, or `odradek transactions abort` ends it; until then no read_committed consumer passes it.
    """

    async def work(client: Admin) -> list[TransactionDescription]:
        ids = [each.transactional_id for each in await client.list_transactions(states=["Ongoing"])]
        described = (await client.describe_transactions(ids)).values()
        return [each for each in described if isinstance(each, TransactionDescription) and each.is_prepared]

    _print(with_admin(work), as_json=as_json)


@command.command()
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID")
@cluster_options
def abort(*, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, also a prepared one, and fence its producer."""

    async def work(client: Admin) -> str:
        (found,) = _without_errors((await client.describe_transactions([transactional_id])).values())
        await client.terminate_transaction(transactional_id)
        return found.state

    state = with_admin(work)
    ended = "aborted its open transaction" if state == "Ongoing" else f"it had no open transaction ({state})"
    say(f"{transactional_id}: {ended}; its producer is fenced")


@command.command(name="find-hanging")
@click.argument("topics", nargs=-1, type=TOPICS, metavar="[TOPIC[:N,N-N]...]")
@table_options
@cluster_options
def find_hanging(*, topics: Sequence[str], as_json: bool) -> None:
    """Find open transactions that no coordinator ends, in topics or partitions; in all topics by default.

    A read_committed consumer waits at such a transaction for ever. `odradek partitions abort-transaction` ends it.
    """

    async def work(client: Admin) -> list[HangingTransaction]:
        names = topics or [each.name for each in await client.list_topics(include_internal=True)]
        return await client.find_hanging_transactions(await partitions_of_topics(client, names))

    names = ("TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "LAST-RECORD", "START-OFFSET", "COORDINATOR-EPOCH")
    print_listing(with_admin(work), names, _hanging_row, as_json=as_json)


def _hanging_row(each: HangingTransaction) -> Sequence[object]:
    producer = each.producer
    return (
        *each.partition, producer.producer_id, producer.producer_epoch, _time(producer.last_timestamp),
        producer.current_txn_start_offset, producer.coordinator_epoch,
    )  # fmt: skip


def _without_errors(described: Iterable[TransactionDescription | KafkaError]) -> list[TransactionDescription]:
    """Return the descriptions. Raises the first `KafkaError`."""
    found = []
    for each in described:
        if isinstance(each, KafkaError):
            raise each
        found.append(each)
    return found


def _print(found: Sequence[TransactionDescription], *, as_json: bool) -> None:
    names = ("TRANSACTIONAL-ID", "STATE", "STARTED", "TOPIC-PARTITIONS", "TIMEOUT-MS")
    print_listing(found, (*names, "PRODUCER-ID", "EPOCH", "COORDINATOR"), _row, as_json=as_json)


def _row(each: TransactionDescription) -> Sequence[object]:
    return (
        each.transactional_id, each.state, None if each.start_ms is None else _time(each.start_ms),
        ", ".join(f"{topic}-{number}" for topic, number in each.partitions),
        "none" if each.timeout_ms == NO_TIMEOUT_MS else each.timeout_ms,
        each.producer_id, each.producer_epoch, each.coordinator_id,
    )  # fmt: skip


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).isoformat(" ", "seconds")
