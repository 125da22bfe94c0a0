"""`odradek lab play`: a script of clicks on one group of each generation, step by step."""

from collections.abc import Sequence
from typing import Final

import click
from click.core import ParameterSource

from odradek.cli.common import print_json, print_table, say, table_options
from odradek.cli.lab.picture import timeline_option, write_picture
from odradek.cli.lab.simulated import generation_option, silent_brokers
from odradek.lab.costs import Generation
from odradek.lab.pictures.views import timelines_chart

_STEPS: Final = ("AT-S", "NOT-READ", "STEP")
_TOTALS: Final = (
    "GENERATION", "NOT-READ-PARTITION-S", "INTERRUPTED-S", "GROUP-REQUESTS", "TREE-READS", "TREE-WRITES",
)  # fmt: skip


@click.command()
@click.argument("script")
@generation_option
@click.option("--partitions", default=6, show_default=True, metavar="N", help="Partitions of the topic, from 1 to 12.")
@click.option("--seed", default=0, show_default=True, help="Of the simulated network: other delays, other steps.")
@click.option("--messages", is_flag=True, help="Also show each message with its main fields.")
@timeline_option
@table_options
def play(
    *,
    script: str,
    chosen: Sequence[Generation],
    partitions: int,
    seed: int,
    messages: bool,
    timeline: str | None,
    as_json: bool,
) -> None:
    """Play clicks on a group of each generation, and show each step in words and what it costs.

    SCRIPT has SECONDS:CLICK, separated by commas, such as 0:join,0:join,5:join,12:die-2,20:broker-1,45:end. The clicks
    are join, leave-N, die-N, broker-N, broker-N-back, zookeeper-away, zookeeper-back, reader (a consumer without a
    group), grow-N (the topic gets partitions until it has N), upgrade-N (member N starts again with generation 3),
    failover-N (the coordinator dies in phase 1 to 5 of a rebalance) and end. Three brokers, the network and the tree
    are simulated in virtual time. A silent member is removed after six seconds. NOT-READ are the partitions that nobody
    reads after the step. --json has an object for each generation.

    SCRIPT may also be failover-1 to failover-5 alone: a member joins a group that commits, the coordinator dies in this
    phase, and at the end owners, commits and generations are checked. Without --generation, it is one of generation 2.
    """
    from odradek.lab.player import parse_script
    from odradek.lab.player.playing import play as play_script

    parsed = parse_script(script)
    if parsed.name and click.get_current_context().get_parameter_source("chosen") is ParameterSource.DEFAULT:
        chosen = (Generation.EAGER,)
    with silent_brokers():
        plays = [play_script(each, parsed, partitions=partitions, seed=seed) for each in chosen]
    title = f"{parsed}; gaps are red"
    write_picture(timeline, lambda: timelines_chart(title, [each.timeline for each in plays]))
    if as_json:
        for made in plays:
            print_json(made)
        return
    for made in plays:
        say(f"generation {made.generation}")
        rows = [
            (
                f"{step.at_ms / 1000:.3f}",
                ",".join(map(str, step.unread)) or None,
                step.text + (f" [{step.message}]" if messages and step.message else ""),
            )
            for step in made.steps
        ]
        print_table(_STEPS, rows)
        for finding in made.findings:
            say(finding.text if finding.holds else f"broken: {finding.text}")
        click.echo()
    print_table(
        _TOTALS,
        [
            (
                made.generation,
                f"{made.totals.unread_partition_ms / 1000:.2f}",
                f"{made.totals.interrupted_ms / 1000:.2f}",
                made.totals.requests,
                made.totals.tree_reads,
                made.totals.tree_writes,
            )
            for made in plays
        ],
    )
    if not all(finding.holds for made in plays for finding in made.findings):
        raise click.exceptions.Exit(1)
