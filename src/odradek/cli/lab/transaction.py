"""`odradek lab transaction`: one transaction on a simulated cluster, step by step."""

from typing import TYPE_CHECKING

import click

from odradek.cli.common import print_json, print_table, table_options
from odradek.cli.lab.picture import picture_option, write_picture
from odradek.cli.lab.simulated import silent_brokers

if TYPE_CHECKING:
    from odradek.lab.transaction import Played, Step


@click.command()
@click.option("--abort", is_flag=True, help="Abort it in place of committing it.")
@click.option(
    "--version",
    type=click.Choice(("1", "2")),
    default="2",
    show_default=True,
    help="transaction.version of the cluster; with 1, the producer adds partitions itself.",
)
@click.option("--two-phase", is_flag=True, help="Prepare it first; a database decides how it ends.")
@click.option(
    "--kill",
    type=click.Choice(("producer", "leader", "coordinator")),
    help="Kill the producer (another one starts) or the leader of words-0 before the end, or the coordinator at it.",
)
@click.option("--seed", default=0, show_default=True, help="Of the simulated network: other delays, another order.")
@picture_option
@table_options
def transaction(
    *, abort: bool, version: str, two_phase: bool, kill: str | None, seed: int, picture: str | None, as_json: bool
) -> None:
    """Play one transaction on three simulated brokers, and show each step.

    A producer reads a record of the topic lines, writes a record to each of two partitions of the topic words, and
    commits its offset, in one transaction. Two consumers read words. STATE is that of the transaction at its
    coordinator. A partition has LSO/END: a read_committed consumer reads up to the last stable offset (LSO), a
    read_uncommitted one up to the end of what is committed to all replicas (the high watermark).
    """
    from odradek.lab.pictures.exchange import transaction_chart
    from odradek.lab.transaction import Plan, Victim, play_transaction

    if kill == "producer" and not two_phase:
        abort = True
    plan = Plan(
        is_commit=not abort,
        version=int(version),
        two_phase=two_phase,
        kill=None if kill is None else Victim(kill),
        seed=seed,
    )
    with silent_brokers():
        played = play_transaction(plan)
    write_picture(picture, lambda: transaction_chart(played))
    if as_json:
        for step in played.steps:
            print_json(step)
        return
    _print(played)


def _print(played: "Played") -> None:
    for host, role in played.roles.items():
        click.echo(f"{host}: {role}")
    places = tuple(played.steps[0].offsets)
    print_table(("MS", "STATE", *(name.upper() for name in places), "STEP"), [_row(step) for step in played.steps])


def _row(step: "Step") -> tuple[object, ...]:
    who = step.source if step.source == step.target else f"{step.source} → {step.target}"
    offsets = (f"{stable}/{end}" for stable, end in step.offsets.values())
    return (f"{step.at_ms:.1f}", step.state, *offsets, f"{who}: {step.event}")
