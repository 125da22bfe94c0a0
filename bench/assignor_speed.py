"""`odradek bench assignors`: time and memory of the assignors on large groups, beside Kafka's."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import click

from bench.measure import Aim, Row, peak_resident_mib, print_rows, rounds
from bench.peers.kafka_assignors import Case, run_kafka_assignors
from odradek.assignors import Assignment, GroupSubscription, MemberSubscription, create_assignor
from odradek.model import TopicPartition

HALF_OF_KAFKAS: Final = Aim(0.5, at_most=True)
_JVM: Final = ("-Xmx8G",)
_OUR_SIDE: Final = "odradek"
_CHILD: Final = "from bench.assignor_speed import run_case; import sys; run_case(sys.argv[1])"


@click.command()
@click.option(
    "--strategy", default="cooperative-sticky", show_default=True, help="Of clients, or server-uniform, server-range."
)
@click.option("--members", default=2_000, show_default=True, metavar="N", help="Members of the group.")
@click.option("--topics", default=500, show_default=True, metavar="N", help="Topics.")
@click.option("--partitions", default=2_000, show_default=True, metavar="N", help="Partitions of each topic.")
@click.option(
    "--repeat", default=5, show_default=True, metavar="N", help="Assignments in a process; the median counts."
)
@click.option(
    "--limit", "limit_s", default=60.0, show_default=True, metavar="S", help="Seconds that a process may take."
)
@click.option("--change", "changes", multiple=True, metavar="NAME", help="Only this change of the group; repeatable.")
@click.option("--rounds", "count", default=3, show_default=True, help="Times each side runs; medians are shown.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def assignors(
    strategy: str,
    members: int,
    topics: int,
    partitions: int,
    repeat: int,
    limit_s: float,
    changes: Sequence[str],
    count: int,
    *,
    as_json: bool,
) -> None:
    """Assign a large group: fresh, one leaves, one joins, one odd subscription, all subscriptions different."""
    rows = []
    for what, group in _groups({f"t{number:04}": partitions for number in range(topics)}, members).items():
        if changes and what not in changes:
            continue
        case = Case(strategy=strategy, group=group, repeat=repeat, prints=False)
        sides = {_OUR_SIDE: _ours(case, limit_s), "kafka": _kafkas(case, limit_s)}
        figures = rounds(count, sides)
        for name, unit in (("seconds", "s"), ("peak_mib", "MiB, peak of the process")):
            values = {side: by[name] for side, by in figures.items()}
            rows.append(Row(what=what, unit=unit, figures=values, of=_OUR_SIDE, to="kafka", aim=HALF_OF_KAFKAS))
    title = f"{strategy}: {members:,} members, {topics * partitions:,} partitions in {topics:,} topics"
    print_rows(title, rows, as_json=as_json)


def _groups(counts: Mapping[str, int], size: int) -> dict[str, GroupSubscription]:
    """Return the groups by change. Owned partitions are lists, as a leader decodes them from JoinGroup."""
    names = [f"member-{number:05}" for number in range(size)]
    random, everything = Random(1), sorted(counts)
    fresh = {name: MemberSubscription(topics=everything) for name in names}
    had = _owned(counts, fresh)
    last = names[-1]
    return {
        "fresh": GroupSubscription(partitions=counts, members=fresh),
        "one leaves": GroupSubscription(partitions=counts, members={name: had[name] for name in names[:-1]}),
        "one joins": GroupSubscription(
            partitions=counts, members={**_owned(counts, {name: fresh[name] for name in names[:-1]}), last: fresh[last]}
        ),
        "one odd subscription": GroupSubscription(
            partitions=counts, members={**had, last: MemberSubscription(topics=everything[:1])}
        ),
        "all subscriptions different": GroupSubscription(
            partitions=counts,
            members={
                name: MemberSubscription(topics=random.sample(everything, max(1, len(everything) // 2)))
                for name in names
            },
        ),
    }


def _owned(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> dict[str, MemberSubscription]:
    """Return the members with the partitions that `sticky` assigns to them in a new group."""
    assignment: Assignment = create_assignor("sticky").assign(GroupSubscription(partitions=counts, members=members))
    return {
        name: MemberSubscription(topics=each.topics, owned=list(assignment[name]), generation=1)
        for name, each in members.items()
    }


def _ours(case: Case, limit_s: float) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        with tempfile.NamedTemporaryFile(suffix=".case") as file:
            Path(file.name).write_bytes(pickle.dumps(case))
            done = subprocess.run(
                [sys.executable, "-c", _CHILD, file.name], capture_output=True, timeout=limit_s, check=True
            )
        figures: Mapping[str, float] = json.loads(done.stdout)
        return figures

    return run


def run_case(path: str) -> None:
    """Print the median of a pickled case's seconds and this process's peak memory, as JSON."""
    case: Case = pickle.loads(Path(path).read_bytes())
    group = _with_user_data(case.group) if case.strategy == "sticky" else case.group
    seconds = []
    for _ in range(case.repeat):
        started = time.perf_counter()
        assignment = create_assignor(case.strategy.removeprefix("server-")).assign(group)
        for member in assignment:
            assignment[member]  # computed at its first access
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": median(seconds), "peak_mib": peak_resident_mib(os.getpid())}))


def _with_user_data(group: GroupSubscription) -> GroupSubscription:
    """Return the group with owned partitions in the members' user data, as `sticky` sends them."""
    members = {}
    for name, each in group.members.items():
        assignor = create_assignor("sticky")
        assignor.on_assignment([TopicPartition(*partition) for partition in each.owned], each.generation)
        user_data = assignor.user_data(each.topics) if each.owned else None
        members[name] = MemberSubscription(topics=each.topics, user_data=user_data)
    return GroupSubscription(partitions=group.partitions, members=members)


def _kafkas(case: Case, limit_s: float) -> Callable[[], Mapping[str, float]]:
    """Return a run of Kafka's assignor, whose figures are infinite if it takes longer than `limit_s`."""

    def run() -> Mapping[str, float]:
        try:
            (result,) = run_kafka_assignors([case], timeout_s=limit_s, flags=_JVM)
        except subprocess.TimeoutExpired:
            return {"seconds": float("inf"), "peak_mib": float("inf")}
        return {"seconds": median(result.seconds), "peak_mib": result.peak_mib}

    return run
