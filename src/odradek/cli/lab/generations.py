"""`odradek lab generations`: what a change of a group's membership costs in each generation, on a simulated cluster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.common import json_option, print_json, print_table

if TYPE_CHECKING:
    from odradek.lab.generations import Cost

_CHANGES: Final = {"joins": "one joins", "leaves": "one leaves", "dies": "one dies"}
_COLUMNS: Final = (
    "CHANGE", "MEMBERS", "GENERATION", "SETTLED-S", "STOPPED-PARTITION-S", "MEMBERS-STOPPED", "GROUP-REQUESTS",
    "TREE-READS", "TREE-WRITES",
)  # fmt: skip


@click.command()
@click.option("--members", type=click.IntRange(2, 1_000), default=10, show_default=True, help="Members of the group.")
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Partitions of its topic."
)
@click.option(
    "--change", "changes", type=click.Choice(tuple(_CHANGES)), multiple=True, help="May be repeated; all by default."
)
@click.option("--seed", default=0, show_default=True, help="Of the simulated network: other delays, other figures.")
@json_option
def generations(*, members: int, partitions: int, changes: Sequence[str], seed: int, as_json: bool) -> None:
    """Run the same change of membership in every generation of groups, and show what it costs.

    Brokers, network and tree are simulated in virtual time. Members send heartbeats every second; a silent one is
    removed after six. SETTLED-S ends when every partition has one owner and nothing moves any more.
    """
    from odradek.lab.generations import Change, measure_all

    if members > partitions:
        raise click.BadParameter(f"{members} members need at least as many partitions, not {partitions}")
    wanted = [Change(_CHANGES[each]) for each in changes or _CHANGES]

    def show(cost: "Cost") -> None:
        if as_json:
            print_json(cost)
        else:
            click.echo(f"{cost.change}, generation {cost.generation}: done", err=True)

    costs = measure_all(wanted, members=members, partitions=partitions, seed=seed, measured=show)
    if not as_json:
        print_table(_COLUMNS, [_row(cost) for cost in costs])


def _row(cost: "Cost") -> tuple[object, ...]:
    return (
        cost.change,
        cost.members,
        cost.generation,
        f"{cost.settled_s:.2f}",
        f"{cost.stopped_partition_s:.1f}",
        cost.members_stopped,
        cost.group_requests,
        cost.tree_reads,
        cost.tree_writes,
    )
