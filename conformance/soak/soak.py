"""`make soak`: rounds of faults under clients that others wrote, on three brokers and three ZooKeeper servers.

Each round is a new cluster, and a schedule of overlapping faults that its seed draws. Afterwards the cluster must be
whole, every client must get on, and everything acknowledged or read is audited. Exits with 1 if a round found anything.
"""

import gc
import logging
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from conformance.soak import soak_network
from conformance.soak.soak_faults import FAULTS
from conformance.soak.soak_round import Report, Round
from conformance.soak.soak_servers import BROKERS, ZOOKEEPERS
from odradek.testing.servers.zookeeper import find_zookeeper

_COMPLAINTS_SHOWN = 20


def tell(report: Report, directory: Path, say: Console) -> None:
    """One round's outcome; of one with findings, all that is needed to look into it."""
    pauses = ", ".join(f"{client} {seconds:.1f}" for client, seconds in report.pauses.items())
    faults = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in report.faults.items())
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in report.phases.items())
    total = sum(report.phases.values())
    line = (
        f"{total:.0f} s ({phases}), {report.acknowledged:,} acknowledged, longest pauses in seconds: {pauses}; {faults}"
    )
    say.print(f"seed {report.seed}: {line}", markup=False, highlight=False, soft_wrap=True)
    if report.findings:
        lines = [f"  FOUND: {finding}" for finding in report.findings]
        lines += ["  the schedule:", *(f"    {event}" for event in report.schedule)]
        lines += ["  what happened:", *(f"    {note}" for note in report.notes)]
        lines += [f"    {count} × {complaint}" for complaint, count in report.complaints.most_common(_COMPLAINTS_SHOWN)]
        lines += [f"  its files are kept: {directory}"]
        say.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def summary(reports: list[Report], say: Console) -> None:
    """Return the sums over all rounds."""
    counts: Counter[str] = sum((report.faults for report in reports), Counter())
    made = Table(title="faults injected", title_justify="left")
    made.add_column("fault")
    made.add_column("times", justify="right")
    for name in FAULTS:
        made.add_row(name, str(counts[name]))
    say.print(made)
    administered: Counter[str] = sum((report.administered for report in reports), Counter())
    say.print("administered: " + ", ".join(f"{name} ×{count}" for name, count in sorted(administered.items())))
    pauses = {
        client: [report.pauses[client] for report in reports if client in report.pauses] for client in reports[0].pauses
    }
    for client, seconds in pauses.items():
        say.print(f"longest pause of {client}: p50 {statistics.median(seconds):.1f} s, max {max(seconds):.1f} s")
    complaints: Counter[str] = sum((report.complaints for report in reports), Counter())
    for complaint, count in complaints.most_common(_COMPLAINTS_SHOWN):
        say.print(f"{count:>7,} × {complaint}", markup=False, highlight=False)
    failed = [str(report.seed) for report in reports if report.findings]
    say.print(
        f"{len(reports)} rounds, {sum(report.acknowledged for report in reports):,} acknowledged records: "
        + (f"findings with seeds {', '.join(failed)}" if failed else "nothing found")
    )


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=50, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The first round's; one more each.")
@click.option("--seconds", type=click.FloatRange(min=1), default=25, show_default=True, help="Of faults in each round.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where rounds with findings leave their files.")
def main(*, rounds: int, seed: int, seconds: float, folder: Path | None) -> None:
    """Play rounds of faults on three brokers and three ZooKeeper servers under other people's clients."""
    if find_zookeeper() is None:
        raise click.ClickException("ZooKeeper is not installed: as root, apt-get install zookeeper")
    if trouble := soak_network.trouble():
        raise click.ClickException(f"the soak needs namespaces of users, networks, mounts and processes: {trouble}")
    soak_network.enter()
    logging.getLogger().addHandler(logging.NullHandler())  # what clients complain of is counted
    say = Console(width=None if sys.stdout.isatty() else 160)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="odradek-soak-", dir=folder))
    network = soak_network.Network([*BROKERS, *ZOOKEEPERS])
    reports = []
    for number in range(seed, seed + rounds):
        directory = root / f"seed-{number}"
        directory.mkdir()
        reports.append(Round(number, seconds, directory, network).play())
        tell(reports[-1], directory, say)
        gc.collect()
    summary(reports, say)
    failed = any(report.findings for report in reports)
    if not failed:
        root.rmdir()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
