"""`make soak`: rounds of faults, and a table of the longest pauses.

Each round is one of each fault on a cluster of its own, in an order that its seed draws, with the metadata tree in
SQLite and, where it is installed, in ZooKeeper. Exit status 1 if anything acknowledged was lost, doubled or reordered.
"""

import gc
import random
import statistics
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from fault_rounds import FAULTS, Outcome, trial
from rich.console import Console
from rich.table import Table

from odradek.testing.zookeeper import ZookeeperServer, find_zookeeper

STORES = ("sqlite", "zookeeper")


@contextmanager
def tree(store: str, directory: Path, seed: int) -> Iterator[str]:
    """The URL of a new metadata tree."""
    if store == "sqlite":
        yield f"sqlite:///{directory}/metadata.sqlite"
    else:
        with ZookeeperServer(directory / "zookeeper") as server:
            yield f"zookeeper://{server.address}/soak-{seed}"


def play(store: str, seed: int, say: Console) -> tuple[list[Outcome], str, Counter[str]]:
    """One round: what happened, what was wrong, and what clients complained of."""
    faults = list(FAULTS)
    random.Random(seed).shuffle(faults)
    with (
        tempfile.TemporaryDirectory(prefix="odradek-soak-") as folder,
        tree(store, Path(folder), seed) as url,
        trial(Path(folder), url, seed) as tried,
    ):
        for fault in faults:
            say.print(f"  {tried.inflict(fault)}", highlight=False)
        found = tried.finish()
        say.print(f"  {tried.history.acknowledged():,} acknowledged records: {found or 'all there'}")
        return tried.outcomes, found, tried.complaints()


def table(outcomes: dict[str, list[Outcome]]) -> Table:
    """The longest pause of each client in each fault: p50 and maximum over the rounds, in seconds."""
    made = Table(title="longest time without an acknowledged write, seconds: p50 / max", title_justify="left")
    clients = sorted({client for some in outcomes.values() for each in some for client in each.pauses})
    for column in ("tree", "fault", "times", *clients, "whole again"):
        made.add_column(column, justify="left" if column in {"tree", "fault"} else "right")
    for store, some in outcomes.items():
        by_fault = defaultdict(list)
        for outcome in some:
            by_fault[outcome.fault].append(outcome)
        for fault, these in sorted(by_fault.items()):
            columns = [[each.pauses[client] for each in these] for client in clients]
            columns.append([each.seconds for each in these])
            figures = [f"{statistics.median(column):.2f} / {max(column):.2f}" for column in columns]
            made.add_row(store, str(fault), str(len(these)), *figures)
    return made


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="On each store.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The first round's; one more each.")
@click.option("--store", "stores", type=click.Choice(STORES), multiple=True, help="Only on these.")
def main(*, rounds: int, seed: int, stores: tuple[str, ...]) -> None:
    """Kill, stop and restart brokers under three clients' producers and consumers."""
    console = Console()
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    complaints: Counter[str] = Counter()
    failed = []
    for number in range(seed, seed + rounds):
        for store in stores or STORES:
            if store == "zookeeper" and find_zookeeper() is None:
                continue
            console.print(f"round with seed {number}, the tree in {store}", highlight=False)
            try:
                happened, wrong, said = play(store, number, console)
            except (AssertionError, TimeoutError, RuntimeError):
                console.print(traceback.format_exc(), markup=False, highlight=False)
                failed.append(f"{store} {number}")
                continue
            outcomes[store] += happened
            complaints += said
            if wrong:
                failed.append(f"{store} {number}")
            gc.collect()
    console.print(table(outcomes))
    for complaint, count in complaints.most_common(20):
        console.print(f"{count:>7,} × {complaint}", highlight=False)
    if failed:
        console.print(f"[red]failed:[/] {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
