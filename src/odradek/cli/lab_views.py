"""Tables and sentences of `odradek lab`."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

import click

from odradek.cli.common import print_table
from odradek.lab.case import Case
from odradek.lab.measures import Measures, measure
from odradek.lab.notation import partitions_text
from odradek.lab.runs import Run
from odradek.model import TopicPartition

MEASURE_COLUMNS: Final = ("STRATEGY", "PROTOCOL", "FEWEST", "MOST", "IDLE", "MOVED", "STOPPED", "LOCAL", "REBALANCES")


def measures_row(row: Measures) -> tuple[object, ...]:
    """Return a row under `MEASURE_COLUMNS`."""
    return (
        row.strategy, row.protocol, row.fewest, row.most, row.idle, row.moved, row.stopped, row.local, row.generations,
    )  # fmt: skip


def print_run(case: Case, run: Run, limit: int) -> None:
    """Print at most `limit` members or threads and their partitions, and how many of the others have how many."""
    shares = run.settled if run.threads is None else run.threads
    before = case.owners()
    rows = [_row(name, shares[name], before, run) for name in islice(shares, limit)]
    heading = "MEMBER" if run.threads is None else "THREAD"
    columns = (heading, "COUNT", "PARTITIONS", "NEW TO IT") if before else (heading, "COUNT", "PARTITIONS")
    print_table(columns, [row if before else row[:3] for row in rows])
    if len(shares) > limit:
        click.echo(
            f"shown: {limit:,} of {len(shares):,} {heading.lower()}s; --limit shows more of them, --json shows all"
        )
        for count, members in sorted(Counter(map(len, shares.values())).items()):
            click.echo(f"  {members:,} of them have {count:,} {'partition' if count == 1 else 'partitions'}")


def summary(case: Case, run: Run) -> str:
    """Return the sentence below an assignment."""
    found = measure(case, run)
    each = f"{found.fewest:,}" if found.fewest == found.most else f"{found.fewest:,} to {found.most:,}"
    text = (
        f"{run.strategy}: {_count(case.partition_count, 'partition')}, {_count(len(case.members), 'member')}, "
        f"{each} each, {found.idle:,} idle"
    )
    if case.owners():
        text += f"; {found.moved:,} moved"
    if found.local is not None:
        text += f"; {found.local:,} with a replica on the member's rack"
    if run.generations > 1:
        withheld = sum(map(len, run.settled.values())) - sum(map(len, run.first.values()))
        text += (
            f"; {run.generations} rebalances: in the first, {_count(withheld, 'partition')} that change hands get no "
            "owner, until the old one has revoked them"
        )
    if unread := case.partition_count - sum(map(len, run.settled.values())):
        text += f"; {_count(unread, 'partition')} without a subscriber"
    return text


def _row(
    name: str, partitions: Sequence[TopicPartition], before: dict[TopicPartition, str], run: Run
) -> tuple[object, ...]:
    member = name if run.threads is None else name.rpartition("-")[0]
    new = [each for each in partitions if before.get(each) != member]
    return name, len(partitions), partitions_text(partitions) or None, partitions_text(new) or None


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
