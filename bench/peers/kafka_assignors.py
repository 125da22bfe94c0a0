"""Runs Kafka's own assignors in one JVM on many inputs (`kafka/Assignors.java`).

The file of cases has lines of tab-separated fields; racks are `a+b;a;` by partition, owned partitions
`topic:0 2,other:1`, and `-` means none:

    case    strategy, repetitions, whether to print the assignment
    topic   name, count, racks
    member  id, instance id, rack, generation, topics, owned partitions
    end
"""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.peers.kafka_peer import kafka_home
from odradek.assignors import GroupSubscription, MemberSubscription
from odradek.model import UnavailableError

_SOURCE: Final = Path(__file__).resolve().parent / "kafka" / "Assignors.java"
_GRID_SOURCE: Final = _SOURCE.with_name("AssignorGrid.java")
_GRID_FLAGS: Final = ("-Xmx4G",)
_NO_COMPILER: Final = "jdk.compiler"

Partitions = list[tuple[str, int]]


class Case(Struct, frozen=True, kw_only=True):
    """One input of an assignor. A member's generation is that of its owned partitions, -1 without any."""

    strategy: str
    group: GroupSubscription
    repeat: int = 1
    prints: bool = True


class Result(Struct, frozen=True, kw_only=True):
    """The result of a case: `seconds` of each repetition, and the JVM's peak resident memory so far."""

    seconds: Sequence[float]
    peak_mib: float
    assignment: Mapping[str, Partitions]


def run_kafka_assignors(cases: Iterable[Case], *, timeout_s: float, flags: Sequence[str] = ()) -> list[Result]:
    """Return Kafka's results, in order.

    Raises `UnavailableError` without Kafka or a Java compiler, and `subprocess.TimeoutExpired`.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".cases") as file:
        for case in cases:
            file.writelines(f"{line}\n" for line in _lines(case))
        file.flush()
        return list(_results(_run(_SOURCE, file.name, flags=flags, timeout_s=timeout_s)))


class GridCell(Struct, frozen=True, kw_only=True):
    """A group of Kafka's ServerSideAssignorBenchmark; `ratio` is the number of partitions per member."""

    assignor: str
    members: int
    ratio: int
    topics: int
    buckets: int
    """The number of different subscriptions, which share no topic."""
    joins: bool
    """Whether a member joins a group that has partitions; else no member has any."""


def run_kafka_grid(cells: Sequence[GridCell], warm_up_s: float, measured_s: float) -> list[float]:
    """Return the mean CPU ms of each cell's assignment by Kafka's assignors in one JVM, after `warm_up_s` each.

    Raises `UnavailableError` without Kafka or a Java compiler.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".cells") as file:
        for cell in cells:
            sizes = (cell.members, cell.ratio, cell.topics, cell.buckets, int(cell.joins))
            file.write("\t".join((cell.assignor, *map(str, sizes))) + "\n")
        file.flush()
        lines = _run(_GRID_SOURCE, file.name, str(warm_up_s), str(measured_s), flags=_GRID_FLAGS, timeout_s=None)
    return [float(line.split("\t")[0]) for line in lines]


def _run(source: Path, *arguments: str, flags: Sequence[str], timeout_s: float | None) -> list[str]:
    """Run a Java source file, and return the lines that it prints."""
    chosen = {"flags": flags} if flags else {}
    command = kafka_home().command(str(source), *arguments, **chosen)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        if _NO_COMPILER in done.stderr:
            raise UnavailableError("Java has no compiler here: install a JDK, of which a JRE is only a part")
        raise RuntimeError(f"Kafka's assignors ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout.splitlines()


def _lines(case: Case) -> Iterator[str]:
    yield f"case\t{case.strategy}\t{case.repeat}\t{int(case.prints)}"
    for topic, count in case.group.partitions.items():
        racks = ";".join("+".join(sorted(each)) for each in case.group.replica_racks.get(topic, ()))
        yield f"topic\t{topic}\t{count}\t{racks}"
    for member_id, member in case.group.members.items():
        yield "\t".join(("member", member_id, *_fields(member)))
    yield "end"


def _fields(member: MemberSubscription) -> Iterator[str]:
    yield member.instance_id or "-"
    yield member.rack or "-"
    yield str(member.generation)
    yield ",".join(member.topics)
    by_topic = groupby(sorted(member.owned), lambda partition: partition[0])
    yield ",".join(f"{topic}:{' '.join(str(number) for _, number in each)}" for topic, each in by_topic)


def _results(lines: Iterable[str]) -> Iterator[Result]:
    seconds: list[float] = []
    assignment: dict[str, Partitions] = {}
    for line in lines:
        kind, *fields = line.split("\t")
        if kind == "seconds":
            seconds, assignment = [float(each) for each in fields], {}
        elif kind == "member":
            assignment[fields[0]] = list(_partitions(fields[1]))
        else:
            yield Result(seconds=seconds, peak_mib=int(fields[0]) / 1024, assignment=assignment)


def _partitions(text: str) -> Iterator[tuple[str, int]]:
    for each in text.split(",") if text else ():
        topic, _, numbers = each.rpartition(":")
        yield from ((topic, int(number)) for number in numbers.split(" "))
