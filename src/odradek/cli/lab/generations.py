"""`odradek lab generations`: what a change of a group's membership costs in each generation, on a simulated cluster."""

from collections.abc import Sequence
from typing import Final

import click

from odradek.cli.common import print_json, print_table, table_options
from odradek.cli.lab.picture import picture_option, timeline_option, write_picture
from odradek.cli.lab.simulated import generation_option, silent_brokers
from odradek.lab.costs import Change, Cost, Generation

_CHANGES: Final = {"joins": "one joins", "leaves": "one leaves", "dies": "one dies"}
_COLUMNS: Final = (
    "CHANGE", "MEMBERS", "GENERATION", "SETTLED-S", "STOPPED-PARTITION-S", "MEMBERS-STOPPED", "GROUP-REQUESTS",
    "TREE-READS", "TREE-WRITES", "CLAIMS-REFUSED",
)  # fmt: skip


@click.command()
@click.option(
    "--members",
    type=click.IntRange(2, 1_000),
    multiple=True,
    default=(10,),
    show_default=True,
    help="Members of the group; may be repeated, for groups of several sizes.",
)
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Partitions of its topic."
)
@click.option(
    "--change", "changes", type=click.Choice(tuple(_CHANGES)), multiple=True, help="May be repeated; all by default."
)
@generation_option
@click.option("--seed", default=0, show_default=True, help="Of the simulated network: other delays, other figures.")
@picture_option
@timeline_option
@table_options
def generations(
    *,
    members: Sequence[int],
    partitions: int,
    changes: Sequence[str],
    chosen: Sequence[Generation],
    seed: int,
    picture: str | None,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Run the same change of membership in every generation of groups, and show what it costs.

    Brokers, network and tree are simulated in virtual time. Members send heartbeats every second; a silent one is
    removed after six. SETTLED-S ends when every partition has one owner and nothing moves any more. CLAIMS-REFUSED are
    attempts that failed in generation 1, since another member held a claim of the same partition. With groups of
    several sizes, the picture shows the costs over the size.
    """
    from odradek.lab.generations import measure_all
    from odradek.lab.pictures.views import costs_chart, timelines_chart

    if max(members) > partitions:
        raise click.BadParameter(f"{max(members)} members need at least as many partitions, not {partitions}")
    if timeline is not None and (len(changes) != 1 or len(members) != 1):
        raise click.UsageError("--timeline shows one change of one group: add --change joins, and --members once")
    kinds = [Change(_CHANGES[each]) for each in changes or _CHANGES]
    sizes = tuple(dict.fromkeys(members))

    def show(cost: Cost) -> None:
        if as_json:
            print_json(cost)
        else:
            click.echo(f"{cost.change}, {cost.members:,} members, generation {cost.generation}: done", err=True)

    with silent_brokers():
        made = measure_all(kinds, members=sizes, partitions=partitions, generations=chosen, seed=seed, measured=show)
    write_picture(picture, lambda: costs_chart(made))
    title = made.timelines[0].title if len(made.timelines) == 1 else str(kinds[0])
    title += f": {members[0]:,} members, {partitions:,} partitions; gaps are red"
    write_picture(timeline, lambda: timelines_chart(title, made.timelines))
    if not as_json:
        print_table(_COLUMNS, [_row(cost) for cost in made.costs])


def _row(cost: Cost) -> tuple[object, ...]:
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
        cost.claims_refused,
    )
