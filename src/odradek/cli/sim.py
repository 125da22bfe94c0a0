"""`odradek sim`: play whole clusters in virtual time, with faults that a seed draws, and check every promise."""

import logging
import sys
from typing import Final

import click
import msgspec

from odradek.cli.common import json_option, print_json
from odradek.runtime import SystemClock
from odradek.testing.simulated_cluster.seed_run import SeedPlan, SeedResult, run_seed

_TAIL: Final = 20
"""Number of the last events that are printed."""


@click.command()
@click.option("--seed", type=int, required=True, metavar="N", help="Play one seed.")
@json_option
def command(*, seed: int, as_json: bool) -> None:
    """Play clusters with clients and faults in virtual time, and check what they promise.

    A seed decides everything: the cluster, its clients, the faults and every order of events. Exits with 1 if a check
    finds something.
    """
    logging.disable(logging.CRITICAL)  # brokers log what the faults do to them
    clock = SystemClock()
    began = clock.monotonic()
    result = run_seed(SeedPlan(seed=seed))
    took_s = clock.monotonic() - began
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        _print(result)
        click.echo(f"{result.virtual_s:.1f} virtual s in {took_s:.2f} s, {1 / took_s:.2f} seeds/s")
    sys.exit(bool(result.findings))


def _print(result: SeedResult) -> None:
    click.echo(f"seed {result.plan.seed}: {'FAILED' if result.findings else 'no finding'}, trace {result.digest}")
    if not result.findings:
        return
    for title, lines in (
        ("findings", result.findings), ("faults", result.deeds), ("last events", result.trace[-_TAIL:]),
        ("error", result.error.splitlines()),
    ):  # fmt: skip
        if lines:
            click.echo(f"\n{title}:")
            click.echo("\n".join(f"  {line}" for line in lines))
