"""`odradek partitions`: its commands but `reassign`, and those about records."""

from collections.abc import Sequence
from typing import IO

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import ID, OFFSET
from odradek.cli.cluster_names import complete_topics
from odradek.cli.common import cluster_options, print_json, print_listing, print_table, say, table_options, with_admin
from odradek.cli.partition_lists import TOPICS, ids, partitions_of_topics, read_partitions, topic_and_partitions
from odradek.cli.partitions.reassign import reassign
from odradek.cli.partitions.records import delete_records, offsets
from odradek.clients import Admin
from odradek.clients.admin.reassignments import ElectionType, PartitionReassignment
from odradek.clients.metadata import NO_LEADER, PartitionMetadata
from odradek.model import ErrorCode, KafkaError, TopicPartition

Reassignments = dict[TopicPartition, PartitionReassignment]


@click.group(name="partitions", cls=CommandGroup)
def command() -> None:
    """Describe and reassign partitions, elect their leaders, and delete their records."""


for _other in (delete_records, offsets, reassign):
    command.add_command(_other)


@command.command()
@click.argument("topics", nargs=-1, type=TOPICS, metavar="[TOPIC[:N,…]]...", shell_complete=complete_topics)
@click.option("--under-replicated", is_flag=True, help="Only partitions with replicas that are not in sync.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option("--reassigning", is_flag=True, help="Only partitions that are being reassigned.")
@table_options
@cluster_options
def describe(
    *, topics: Sequence[str], under_replicated: bool, unavailable: bool, reassigning: bool, as_json: bool
) -> None:
    """Show the leaders, replicas and in-sync replicas of these topics, or of all."""

    async def work(client: Admin) -> tuple[dict[TopicPartition, PartitionMetadata], Reassignments]:
        named = await partitions_of_topics(client, topics)
        found = (
            (await client.describe_topics(sorted({each.topic for each in named}))).values()
            if topics
            else await client.list_topics(include_internal=True)
        )
        described = {
            TopicPartition(topic.name, number): each for topic in found for number, each in topic.partitions.items()
        }
        shown = {each: described[each] for each in named} if topics else described
        return shown, await _reassignments(client)

    described, moving = with_admin(work)
    chosen = {
        key: each
        for key, each in sorted(described.items())
        if (not under_replicated or len(each.isr) < len(each.replicas))
        and (not unavailable or each.leader == NO_LEADER)
        and (not reassigning or key in moving)
    }
    if as_json:
        for key, each in chosen.items():
            print_json(_as_object(key, each, moving.get(key)))
        return
    columns = ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR"]
    rows = [
        [*key, None if each.leader == NO_LEADER else each.leader, each.leader_epoch, ids(each.replicas), ids(each.isr)]
        for key, each in chosen.items()
    ]
    if moving.keys() & chosen.keys():
        columns += ["ADDING", "REMOVING"]
        for key, row in zip(chosen, rows, strict=True):
            now = moving.get(key)
            row += [None, None] if now is None else [ids(now.adding_replicas), ids(now.removing_replicas)]
    print_table(columns, rows)


@command.command()
@click.option(
    "--topic", "-t", "topics", multiple=True, type=TOPICS, help="A topic or some partitions; may be repeated."
)
@click.option("--partition", "-p", "numbers", multiple=True, type=ID, help="Only this partition; may be repeated.")
@click.option("--file", "-f", "file", type=click.File("rb"), help="Partitions in the JSON of kafka-leader-election.")
@click.option("--all", "is_all", is_flag=True, help="All partitions that need an election.")
@click.option("--unclean", is_flag=True, help="Without an in-sync replica, elect any live one: may LOSE RECORDS.")
@table_options
@cluster_options
@click.pass_context
def elect(
    ctx: click.Context,
    *,
    topics: Sequence[str],
    numbers: Sequence[int],
    file: IO[bytes] | None,
    is_all: bool,
    unclean: bool,
    as_json: bool,
) -> None:
    """Elect the preferred leader of partitions: the first replica of each. Exits with 1 if one can't be elected."""
    if (bool(topics) + (file is not None) + is_all) != 1:
        raise click.UsageError("no partitions named: give --topic (and --partition), --file, or --all")
    if numbers and (not topics or any(":" in topic for topic in topics)):
        raise click.UsageError("--partition needs its --topic, without partitions of its own")
    named = None if file is None else read_partitions(file)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

    async def work(client: Admin) -> dict[TopicPartition, KafkaError | None]:
        wanted = await partitions_of_topics(client, topics, numbers) if topics else named
        return await client.elect_leaders(kind, wanted)

    results = with_admin(work)
    if as_json:
        for key, error in results.items():
            code = None if error is None else error.code.name.upper()
            print_json({"topic": key.topic, "partition": key.partition, "error": code})
    elif results:
        print_table(("TOPIC", "PARTITION", "RESULT"), [(*key, _result(error)) for key, error in results.items()])
    else:
        click.echo("no partition needs an election")
    if any(error is not None and error.code != ErrorCode.election_not_needed for error in results.values()):
        ctx.exit(1)


async def _reassignments(client: Admin) -> Reassignments:
    """Return the reassignments in progress; empty if the broker lacks the API."""
    try:
        return await client.list_partition_reassignments()
    except KafkaError as error:
        if error.code != ErrorCode.unsupported_version:
            raise
        return {}


def _as_object(key: TopicPartition, each: PartitionMetadata, now: PartitionReassignment | None) -> dict[str, object]:
    return {
        "topic": key.topic,
        "partition": key.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": each.replicas,
        "isr": each.isr,
        "offline_replicas": each.offline_replicas,
        "adding_replicas": () if now is None else now.adding_replicas,
        "removing_replicas": () if now is None else now.removing_replicas,
    }


def _result(error: KafkaError | None) -> str:
    if error is None:
        return "elected"
    return "not needed" if error.code == ErrorCode.election_not_needed else str(error)


def _partition(text: str) -> TopicPartition:
    """Parse `TOPIC:N`, as an argument's `type`. Raises `click.BadParameter`."""
    topic, numbers = topic_and_partitions(text)
    if numbers is None or len(numbers) != 1:
        raise click.BadParameter(f"{text!r} is not TOPIC:N, one partition")
    return TopicPartition(topic, numbers[0])


@command.command()
@click.argument("partition", type=_partition, metavar="TOPIC:N")
@table_options
@cluster_options
def producers(*, partition: TopicPartition, as_json: bool) -> None:
    """Show the idempotent producers that the leader of a partition knows, with their open transactions."""
    print_listing(
        with_admin(lambda client: client.describe_producers(partition)),
        ("PRODUCER-ID", "EPOCH", "TRANSACTION-START", "COORDINATOR-EPOCH", "SEQUENCE", "TIMESTAMP"),
        lambda each: (
            each.producer_id, each.producer_epoch, each.current_txn_start_offset, each.coordinator_epoch,
            each.last_sequence, each.last_timestamp,
        ),
        as_json=as_json,
    )  # fmt: skip


@command.command(name="abort-transaction")
@click.argument("partition", type=_partition, metavar="TOPIC:N")
@click.option("--producer-id", type=OFFSET, required=True, metavar="ID", help="The producer.")
@click.option("--producer-epoch", type=click.IntRange(0, 2**15 - 1), required=True, metavar="N", help="Its epoch.")
@click.option("--coordinator-epoch", type=ID, default=0, metavar="N", help="Its coordinator's, if it is known.")
@cluster_options
def abort_transaction(
    *, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Abort a transaction that stays open in a partition because its coordinator does not know it."""

    async def work(client: Admin) -> None:
        # A broker writes the marker for any producer, as Kafka's does.
        found = await client.describe_producers(partition)
        if not any(each.producer_id == producer_id and each.current_txn_start_offset is not None for each in found):
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id} has no open transaction in {partition}; "
                f"odradek partitions producers {partition.topic}:{partition.partition} shows those that have",
            )
        await client.abort_transaction(
            partition, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
        )

    with_admin(work)
    say(f"aborted the transaction of producer {producer_id} in {partition.topic}-{partition.partition}")
