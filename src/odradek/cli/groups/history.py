"""`odradek groups history`: the causes, durations and costs of a group's rebalances."""

from datetime import datetime
from typing import Any

import click

from odradek.cli.checks import COUNT
from odradek.cli.common import cluster_options, print_listing, table_options, with_admin
from odradek.cli.groups.options import group_option
from odradek.model import OdradekError
from odradek.texts.group_texts import slowest, waited_for

_COLUMNS = (
    "TIME", "GENERATION", "MEMBERS", "DURATION", "MOVED", "UNOWNED", "LONGEST", "WAITED FOR", "REVOCATION", "CAUSE",
)  # fmt: skip


@click.command()
@group_option
@click.option("--limit", default=20, show_default=True, metavar="N", type=COUNT, help="Show the last N.")
@table_options
@cluster_options
def history(*, group: str, limit: int, as_json: bool) -> None:
    """Show the causes of a group's rebalances, what they waited for, and the time without an owner.

    DURATION is the time from the cause until the last member had its assignment. UNOWNED is the time without an owner,
    summed over all partitions, LONGEST the longest of a single partition; --json has each. In a group of the consumer
    protocol, GENERATION is the epoch, and REVOCATION the member that took longest to give partitions up. TIME is
    in this machine's time zone, durations are in seconds.
    """
    rebalances = with_admin(lambda cluster: cluster.rebalance_history(group, limit=limit))
    if not rebalances and not as_json:
        raise OdradekError(
            f"__rebalances has no rebalance of the group {group}: it had none, or the brokers have "
            "group.rebalance.journal.enable=false"
        )
    print_listing(rebalances, _COLUMNS, _row, as_json=as_json)


def _row(rebalance: dict[str, Any]) -> tuple[object, ...]:
    outcome = rebalance["outcome"]
    return (
        datetime.fromtimestamp(rebalance["started_ms"] / 1000).isoformat(" ", "milliseconds"),
        rebalance["generation"],
        rebalance["members"],
        _seconds(rebalance["duration_ms"]),
        rebalance["moved"],
        _seconds(rebalance["unowned_partition_ms"]),
        _seconds(rebalance["longest_unowned_ms"]),
        waited_for(rebalance),
        slowest(rebalance.get("revocations", {})),
        rebalance["reason"] + ("" if outcome == "stable" else f" ({outcome})"),
    )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.3f}"
