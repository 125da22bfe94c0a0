"""`odradek partitions producers` and `abort-transaction`: idempotent producers, and hanging transactions (KIP-664)."""

import click

from odradek.cli.checks import ID, OFFSET
from odradek.cli.common import cluster_options, print_listing, say, table_options, with_admin
from odradek.cli.partition_lists import topic_and_partitions
from odradek.clients import Admin
from odradek.model import ErrorCode, KafkaError, TopicPartition


def _partition(text: str) -> TopicPartition:
    """Parse `TOPIC:N`, as an argument's `type`. Raises `click.BadParameter`."""
    topic, numbers = topic_and_partitions(text)
    if numbers is None or len(numbers) != 1:
        raise click.BadParameter(f"{text!r} is not TOPIC:N, one partition")
    return TopicPartition(topic, numbers[0])


@click.command()
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


@click.command(name="abort-transaction")
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
