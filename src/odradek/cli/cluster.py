"""`odradek cluster describe`: the cluster in a few lines, and the replicas that are being moved."""

import click

from odradek.cli import CommandGroup
from odradek.cli.common import cluster_options, print_json, print_table, say, table_options, with_admin
from odradek.clients import Admin
from odradek.clients.admin.descriptions import ClusterDescription
from odradek.clients.admin.moves import Move, read_moves


@click.group(name="cluster", cls=CommandGroup)
def command() -> None:
    """Describe the cluster as a whole."""


@command.command()
@table_options
@cluster_options
def describe(*, as_json: bool) -> None:
    """Show the cluster's id, its controller and brokers, and the replicas that move, with what is left to copy."""

    async def work(client: Admin) -> tuple[ClusterDescription, list[Move]]:
        return await client.describe_cluster(include_fenced_brokers=True), await read_moves(client)

    cluster, moves = with_admin(work)
    live = [each for each in cluster.brokers if not each.is_fenced]
    if as_json:
        described = {"cluster_id": cluster.cluster_id, "controller_id": cluster.controller_id}
        counts = {"live_brokers": len(live), "fenced_brokers": len(cluster.brokers) - len(live)}
        print_json({**described, **counts, "moves": [_as_object(each) for each in moves]})
        return
    controller = "none" if cluster.controller_id < 0 else cluster.controller_id
    say(f"cluster {cluster.cluster_id}  controller {controller}  {len(live)} of {len(cluster.brokers)} brokers live")
    if moves:
        rows = [(*each.partition, each.broker_id, each.log_dir, each.copied, each.left, each.rate) for each in moves]
        shown = [(*row, None if rate is None else round(rate)) for *row, rate in rows]
        print_table(("TOPIC", "PARTITION", "TO BROKER", "TO DIRECTORY", "COPIED", "LEFT", "BYTES/S"), shown)


def _as_object(each: Move) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "broker_id": each.broker_id,
        "log_dir": each.log_dir,
        "copied_bytes": each.copied,
        "left_bytes": each.left,
        "bytes_per_second": each.rate,
    }
