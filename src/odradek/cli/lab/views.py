"""Tables and sentences of `odradek lab`."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import click

from odradek.cli.common import print_table, say
from odradek.lab.case import Case
from odradek.lab.measures import Measures, measure
from odradek.lab.notation import partitions_text
from odradek.lab.runs import Run
from odradek.lab.transition_texts import counted, transition_sentence
from odradek.lab.what_if import Pauses, Transition
from odradek.model import TopicPartition

MEASURE_COLUMNS: Final = ("STRATEGY", "PROTOCOL", "FEWEST", "MOST", "IDLE", "MOVED", "STOPPED", "LOCAL", "REBALANCES")


def measures_row(row: Measures) -> tuple[object, ...]:
    return (
        row.strategy, row.protocol, row.fewest, row.most, row.idle, row.moved, row.stopped, row.local, row.generations,
    )  # fmt: skip


def print_run(case: Case, run: Run, limit: int) -> None:
    """Print at most `limit` members or threads with their partitions; if there are more, also count them by size."""
    shares = run.settled if run.threads is None else run.threads
    before = case.owners()
    rows = [_row(name, shares[name], before, run) for name in islice(shares, limit)]
    heading = "MEMBER" if run.threads is None else "THREAD"
    columns = (heading, "COUNT", "PARTITIONS", "NEW TO IT") if before else (heading, "COUNT", "PARTITIONS")
    print_table(columns, [row if before else row[:3] for row in rows])
    if len(shares) > limit:
        say(f"shown: {limit:,} of {len(shares):,} {heading.lower()}s; --limit shows more of them, --json shows all")
        for count, members in sorted(Counter(map(len, shares.values())).items()):
            say(f"  {members:,} of them have {count:,} {'partition' if count == 1 else 'partitions'}")


def summary(case: Case, run: Run) -> str:
    """Return the one-line summary of an assignment."""
    found = measure(case, run)
    each = f"{found.fewest:,}" if found.fewest == found.most else f"{found.fewest:,} to {found.most:,}"
    text = (
        f"{run.strategy}: {counted(case.partition_count, 'partition')}, {counted(len(case.members), 'member')}, "
        f"{each} each, {found.idle:,} idle"
    )
    if case.owners():
        text += f"; {found.moved:,} moved"
    if found.local is not None:
        text += f"; {found.local:,} with a replica on the member's rack"
    if run.generations > 1:
        withheld = sum(map(len, run.settled.values())) - sum(map(len, run.first.values()))
        text += (
            f"; {run.generations} rebalances: in the first, {counted(withheld, 'partition')} that change hands get no "
            "owner, until the old one has revoked them"
        )
    if unread := case.partition_count - sum(map(len, run.settled.values())):
        text += f"; {counted(unread, 'partition')} without a subscriber"
    return text


def print_transition(made: Transition, limit: int) -> None:
    """Print what each of at most `limit` members has before and after a change, gives up and gets.

    Then print how many partitions move, and which partitions and members stop.
    """
    gives: dict[str, list[TopicPartition]] = {}
    gets: dict[str, list[TopicPartition]] = {}
    for partition, old, new in made.moves:
        if old is not None:
            gives.setdefault(old, []).append(partition)
        if new is not None:
            gets.setdefault(new, []).append(partition)
    names = list(dict.fromkeys([*made.before, *made.run.settled]))
    rows = [
        (
            name,
            len(made.before[name]) if name in made.before else None,
            len(made.run.settled[name]) if name in made.run.settled else None,
            partitions_text(gives.get(name, ())) or None,
            partitions_text(gets.get(name, ())) or None,
        )
        for name in names[:limit]
    ]
    print_table(("MEMBER", "BEFORE", "AFTER", "GIVES UP", "GETS"), rows)
    if len(names) > limit:
        say(f"shown: {limit:,} of {len(names):,} members; --limit shows more of them, --json shows all moves")
    say(transition_sentence(made))
    stopping = made.stopping_partitions
    if not stopping:
        click.echo("no partition stops")
        return
    say(f"partitions that stop: {len(stopping):,} ({partitions_text(stopping)})")
    stopped, shown = len(made.stopping_members), ", ".join(made.stopping_members[:10])
    say(f"members that stop: {stopped:,}" + (f" ({shown}{', …' if stopped > 10 else ''})" if stopped else ""))


def transition_object(made: Transition) -> dict[str, Any]:
    return {
        "strategy": made.run.strategy,
        "protocol": made.protocol.value,
        "generations": made.run.generations,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "from": move.before,
                "to": move.after,
            }
            for move in made.moves
        ],
        "stopping_members": made.stopping_members,
        "stopping_partitions": made.stopping_partitions,
    }


def pauses_sentence(past: Pauses | None) -> str:
    """Return the sentence about the duration of past rebalances; `past` is None if none is known."""
    if past is None:
        return "for how long: unknown, the rebalance journal has no complete rebalance of this group"
    which = f"rebalances with the cause {' or '.join(past.causes)}" if past.causes else "rebalances of any cause"
    return (
        f"for how long: in the last {past.count:,} {which}, {past.duration_ms / 1000:.3f} s from the cause "
        f"until all had "
        f"their assignment, and at most {past.longest_unowned_ms / 1000:.3f} s without an owner for a "
        f"partition (medians)"
    )


def _row(
    name: str, partitions: Sequence[TopicPartition], before: dict[TopicPartition, str], run: Run
) -> tuple[object, ...]:
    member = name if run.threads is None else name.rpartition("-")[0]
    new = [each for each in partitions if before.get(each) != member]
    return name, len(partitions), partitions_text(partitions) or None, partitions_text(new) or None
