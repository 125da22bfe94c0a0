"""`odradek lab assign`, `compare`, `explain` and `what-if`: which member gets which partition, and why."""

from typing import Any

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import COUNT
from odradek.cli.common import json_option, print_json, print_table, say, table_options
from odradek.cli.lab.generations import generations
from odradek.cli.lab.options import Given, case_options, past_pauses, strategy_option
from odradek.cli.lab.picture import picture_option, write_picture
from odradek.cli.lab.play import play
from odradek.cli.lab.replay import replay
from odradek.cli.lab.transaction import transaction
from odradek.cli.lab.views import (
    MEASURE_COLUMNS,
    measures_row,
    pauses_sentence,
    print_run,
    print_transition,
    summary,
    transition_object,
)
from odradek.lab.explain import explain as explain_partition
from odradek.lab.measures import compare as compare_strategies
from odradek.lab.notation import partition_of_text
from odradek.lab.pictures.views import assignment_chart, comparison_chart, transition_chart
from odradek.lab.runs import run_strategy
from odradek.lab.what_if import Change
from odradek.lab.what_if import what_if as compute_what_if
from odradek.model.names import numbers_by_topic


@click.group(name="lab", cls=CommandGroup)
def command() -> None:
    """Explain and simulate the assignment of partitions to members, and what a change of them costs.

    The case is on the command line (--topic t=12 --members 5), in a TOML file (--file), or a live group (--group).
    `generations` and `play` simulate a cluster instead, and `replay` shows the past of a live group.
    """


command.add_command(generations)
command.add_command(play)
command.add_command(replay)
command.add_command(transaction)


@command.command()
@case_options
@strategy_option
@click.option("--limit", default=40, show_default=True, metavar="N", type=COUNT, help="Members that a table shows.")
@picture_option
@table_options
def assign(*, given: Given, strategy: str | None, limit: int, picture: str | None, as_json: bool) -> None:
    """Show which member gets which partitions."""
    run = run_strategy(given.case, strategy or given.strategy or "range")
    write_picture(picture, lambda: assignment_chart(run, given.case.owners()))
    if as_json:
        for member, partitions in run.settled.items():
            print_json({"member": member, "partitions": numbers_by_topic(partitions)})
        return
    print_run(given.case, run, limit)
    say(summary(given.case, run))


@command.command()
@case_options
@click.option(
    "--strategy",
    "-s",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Only this one; may be repeated, and be an import path.  [default: all built-in ones]",
)
@picture_option
@table_options
def compare(*, given: Given, strategies: tuple[str, ...], picture: str | None, as_json: bool) -> None:
    """Show all strategies side by side on the same case.

    FEWEST and MOST are partitions of a member, IDLE are members without one. MOVED are partitions whose owner changes,
    STOPPED those that are not read for a while. LOCAL are partitions with a replica on their member's rack.
    """
    made = compare_strategies(given.case, strategies)
    write_picture(picture, lambda: comparison_chart(made))
    if as_json:
        for row in made.rows:
            print_json(row)
    else:
        print_table(MEASURE_COLUMNS, [measures_row(row) for row in made.rows])
    for failed in made.errors:
        say(f"left out: {failed}", is_remark=True)


@command.command()
@click.argument("partition", metavar="TOPIC-PARTITION")
@case_options
@strategy_option
@json_option
def explain(*, partition: str, given: Given, strategy: str | None, as_json: bool) -> None:
    """Show step by step why a member gets a partition."""
    made = explain_partition(given.case, strategy or given.strategy or "range", partition_of_text(partition))
    if as_json:
        print_json(made)
        return
    owner = made.member or "no member"
    say(f"{made.strategy} gives {made.partition} to {owner}" + (f", thread {made.thread}" if made.thread else ""))
    for number, step in enumerate(made.steps, 1):
        say(f"{number:>3}. {step}")


@command.command(name="what-if")
@case_options
@strategy_option
@click.option("--add-member", "add_members", multiple=True, metavar="N|NAME[=TOPIC,…]", help="New members.")
@click.option(
    "--remove-member", "remove_members", multiple=True, metavar="NAME", help="A member, or how its id begins."
)
@click.option("--add-partitions", multiple=True, metavar="TOPIC=N", help="N more partitions.")
@click.option("--add-topic", "add_topics", multiple=True, metavar="TOPIC=N", help="Members of all topics subscribe.")
@click.option("--remove-topic", "remove_topics", multiple=True, metavar="TOPIC", help="A topic is deleted.")
@click.option(
    "--remove-rack", "remove_racks", multiple=True, metavar="RACK", help="A rack fails: its members and replicas go."
)
@click.option("--to-rack", "to_racks", multiple=True, metavar="NAME=RACK|A,B,…", help="Another rack for members.")
@click.option("--to-strategy", metavar="NAME", help="Another strategy.")
@click.option("--limit", default=40, show_default=True, metavar="N", type=COUNT, help="Members that a table shows.")
@picture_option
@table_options
def what_if(
    *, given: Given, strategy: str | None, limit: int, picture: str | None, as_json: bool, **texts: Any
) -> None:
    """Show what a change of the group would cost: the partitions that move, and the members that stop reading.

    Before the change, members own the partitions of --owned, of the file or of the live group, or else those that the
    strategy gives them. For a live group, also show how long past rebalances with the same cause took.
    """
    change = Change(
        add_members=texts["add_members"],
        remove_members=texts["remove_members"],
        add_partitions=texts["add_partitions"],
        add_topics=texts["add_topics"],
        remove_topics=texts["remove_topics"],
        racks=texts["to_racks"],
        remove_racks=texts["remove_racks"],
        strategy=texts["to_strategy"],
    )
    if change == Change():
        raise click.UsageError("name a change, such as --add-member 1 or --remove-member c0")
    made = compute_what_if(given.case, strategy or given.strategy or "range", change)
    write_picture(picture, lambda: transition_chart(made))
    past = past_pauses(given, change)
    if as_json:
        print_json(transition_object(made) | ({} if given.group is None else {"past": past}))
        return
    print_transition(made, limit)
    if given.group is not None:
        say(pauses_sentence(past))
