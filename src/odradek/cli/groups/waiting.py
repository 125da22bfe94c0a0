"""`odradek groups waiting`: the members of a group that wait for others, and until when."""

import asyncio
from typing import Final

import click

from odradek.cli.checks import COUNT
from odradek.cli.common import cluster_options, print_json, print_table, say, table_options, with_admin
from odradek.cli.groups.options import group_option
from odradek.clients import Admin
from odradek.clients.admin.group_waits import GroupWaits
from odradek.runtime import system_runtime
from odradek.texts.group_texts import headlines, rows

_COLUMNS: Final = ("CONSUMER-ID", "EPOCH", "#PARTITIONS", "STEP", "PARTITIONS", "HELD-BY", "SINCE", "TIMES-OUT")


@click.command()
@group_option
@click.option("--interval", "-i", type=click.FloatRange(min=0.1), metavar="S", help="Show it again every S seconds.")
@click.option("--count", "-c", type=COUNT, help="With --interval: exit after this number of views.")
@table_options
@cluster_options
def waiting(*, group: str, interval: float | None, count: int | None, as_json: bool) -> None:
    """Show which members of a group wait for whom: epochs, what they have to revoke, and what they wait for.

    SINCE is how many seconds ago the coordinator requested the holder of the partitions to revoke them, and TIMES-OUT
    after how many it removes the holder, by the clock of this machine. Both need permission to read __consumer_offsets.
    """
    if count is not None and interval is None:
        raise click.UsageError("--count needs --interval")
    views = 1 if interval is None else count

    async def work(cluster: Admin) -> None:
        number, clock = 0, system_runtime().clock
        while True:
            _show(await cluster.group_waits(group), as_json=as_json, now_ms=clock.now_ms())
            number += 1
            if number == views:
                return
            await asyncio.sleep(interval or 0.0)
            if not as_json:
                click.echo()

    with_admin(work)


def _show(group: GroupWaits, *, as_json: bool, now_ms: int) -> None:
    if as_json:
        print_json(group)
        return
    if group.unreadable:
        say(f"odradek: times, and what members were told to revoke, are unknown: {group.unreadable}", is_remark=True)
    for line in headlines(group):
        say(line)
    if group.members:
        print_table(_COLUMNS, [row for member in group.members for row in rows(group, member, now_ms)])
