"""Runs an assignment strategy on a case until no partition moves.

A cooperative strategy needs two generations: the first withholds partitions that change owners, so that their owners
revoke them; the second assigns them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from odradek.assignors import Assignment, Assignor, MemberSubscription, RebalanceProtocol, assign, create_assignor
from odradek.assignors.custom import CheckedAssignor
from odradek.lab.case import Case, LabError, LabFailure, Member
from odradek.lab.notebook import html
from odradek.model import OdradekError, TopicPartition

_THREADED: Final = ("zookeeper-range", "zookeeper-roundrobin", "ceiling-range")
_MAX_GENERATIONS: Final = 10
"""Two are enough for built-in strategies; a user's own strategy may never settle."""


class Protocol(StrEnum):
    """The rebalance protocol of a group: which partitions members stop reading."""

    EAGER = "eager"
    """Every member revokes all of its partitions before it joins again."""
    COOPERATIVE = "cooperative"
    """A member revokes only partitions that another member gets (KIP-429)."""
    CONSUMER = "consumer"
    """The broker assigns; a member revokes only partitions that another member gets (KIP-848)."""
    TREE = "zookeeper"
    """Generation 1: every consumer stops, reads the ZooKeeper tree and claims its partitions again."""

    @property
    def stops_all(self) -> bool:
        """Return whether members stop reading all partitions, even those that they keep."""
        return self in (Protocol.EAGER, Protocol.TREE)


class Run(Struct, frozen=True, kw_only=True):
    """A strategy's result for a case."""

    strategy: str
    protocol: Protocol
    first: Assignment
    """The assignment of the first generation, by member."""
    settled: Assignment
    """The assignment of the last generation; equals `first` unless `first` withheld partitions."""
    generations: int
    threads: Assignment | None = None
    """The assignment by thread; only the strategies of generation 1 have one."""

    def owners(self) -> dict[TopicPartition, str]:
        """Return the member of each partition in `settled`."""
        return {partition: member for member, some in self.settled.items() for partition in some}

    def _repr_html_(self) -> str:
        return html(self)


def run_strategy(case: Case, strategy: str) -> Run:
    """Run `strategy` once, a cooperative one until nothing moves, at most 10 times. Raises `LabError` if it fails."""
    assignor = create(strategy)
    with _failures(strategy):
        if assignor.name in _THREADED:
            threads = assign(assignor, case.topics, thread_subscriptions(case))
            members = {
                name: [place for number in range(member.threads) for place in threads[f"{name}-{number}"]]
                for name, member in case.members.items()
            }
            return Run(
                strategy=strategy, protocol=Protocol.TREE, first=members, settled=members, generations=1,
                threads=threads,
            )  # fmt: skip
        protocol = protocol_of(assignor)
        first = settled = _assigned(assignor, case)
        count = 1
        while protocol is Protocol.COOPERATIVE and count < _MAX_GENERATIONS:
            case = case.with_owned({name: tuple(settled[name]) for name in case.members}, count)
            following = _assigned(assignor, case)
            if following == settled:
                break
            settled = following
            count += 1
    return Run(strategy=strategy, protocol=protocol, first=first, settled=settled, generations=count)


def create(strategy: str) -> Assignor:
    """Return the assignor of a strategy's name. Raises `LabError` for an unknown one; the message lists the names."""
    with _failures(strategy):
        return create_assignor(strategy)


def protocol_of(assignor: Assignor) -> Protocol:
    if assignor.name in _THREADED:
        return Protocol.TREE
    if assignor.name == "uniform":
        return Protocol.CONSUMER
    is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
    return Protocol.COOPERATIVE if is_cooperative else Protocol.EAGER


def subscriptions(members: Mapping[str, Member]) -> dict[str, MemberSubscription]:
    """Return the members as input for an assignor."""
    return {
        name: MemberSubscription(
            topics=member.topics,
            owned=member.owned,
            generation=member.generation,
            rack=member.rack,
            instance_id=member.instance_id,
        )
        for name, member in members.items()
    }


def thread_subscriptions(case: Case) -> dict[str, Sequence[str]]:
    """Return the topics of each thread `"{member}-{number}"` (SPEC 4)."""
    return {
        f"{name}-{number}": member.topics for name, member in case.members.items() for number in range(member.threads)
    }


def _assigned(assignor: Assignor, case: Case) -> Assignment:
    given = assign(assignor, case.topics, subscriptions(case.members), racks=case.replica_racks)
    if not isinstance(assignor, CheckedAssignor):
        return given
    # A user's own strategy may return plain tuples, and in any kind of sequence.
    return {member: [TopicPartition(*partition) for partition in some] for member, some in given.items()}


@contextlib.contextmanager
def _failures(strategy: str) -> Iterator[None]:
    """Turn any exception of a strategy, which may be the user's code, into a `LabError`."""
    try:
        yield
    except (OdradekError, ValueError) as error:
        raise LabError(str(error)) from error
    except Exception as error:
        raise LabFailure(f"the strategy {strategy} failed: {type(error).__name__}: {error}") from error
