"""`odradek lab`: which member gets which partition, and how strategies differ."""

from collections.abc import Iterable

import click

from odradek.assignors import ASSIGNOR_NAMES
from odradek.cli.common import json_option, print_json, print_table
from odradek.cli.lab_options import Given, case_options, strategy_option
from odradek.cli.lab_views import MEASURE_COLUMNS, measures_row, print_run, summary
from odradek.lab.case import LabError
from odradek.lab.measures import Measures, measure
from odradek.lab.runs import run_strategy


@click.group(name="lab")
def command() -> None:
    """Explain and simulate the assignment of partitions to members.

    The case is on the command line (--topic t=12 --members 5), in a TOML file (--file), or a live group (--group).
    """


@command.command()
@case_options
@strategy_option
@click.option(
    "--limit", default=40, show_default=True, metavar="N", type=click.IntRange(1), help="Members that a table shows."
)
@json_option
def assign(*, given: Given, strategy: str | None, limit: int, as_json: bool) -> None:
    """Show which member gets which partitions."""
    run = run_strategy(given.case, strategy or given.strategy or "range")
    if as_json:
        for member, partitions in run.settled.items():
            print_json({"member": member, "partitions": _by_topic(partitions)})
        return
    print_run(given.case, run, limit)
    click.echo(summary(given.case, run))


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
@json_option
def compare(*, given: Given, strategies: tuple[str, ...], as_json: bool) -> None:
    """Show all strategies side by side on the same case.

    FEWEST and MOST are partitions of a member, IDLE are members without one. MOVED are partitions whose owner changes,
    STOPPED those that are not read for a while. LOCAL are partitions with a replica on their member's rack.
    """
    rows: list[Measures] = []
    errors: list[LabError] = []
    for strategy in dict.fromkeys(strategies or ASSIGNOR_NAMES):
        try:
            rows.append(measure(given.case, run_strategy(given.case, strategy)))
        except LabError as error:
            if strategies:
                raise
            errors.append(error)
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(MEASURE_COLUMNS, [measures_row(row) for row in rows])
    for failed in errors:
        click.echo(f"left out: {failed}", err=True)


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found
