"""M7. The coordinator's assignors beside Kafka's own on random groups: `ODRADEK_SEEDS=5000` tries so many."""

from collections.abc import Sequence
from random import Random

import pytest

from bench.peers.kafka_assignors import Case, Partitions, Result, run_kafka_assignors
from conformance.peers.test_same_assignments import SEEDS, imbalance, moves, random_group
from odradek.assignors import create_assignor
from odradek.model import UnavailableError

pytestmark = pytest.mark.needs("kafka")

PREFIX = "server-"


@pytest.fixture(scope="module")
def compared() -> Sequence[tuple[Case, Result]]:
    """Random groups with the last targets of their members, and what Kafka's coordinator assigns, all from one JVM."""
    groups = [random_group(Random(seed)) for seed in SEEDS]
    cases = [Case(strategy=f"{PREFIX}{name}", group=group) for group in groups for name in ("uniform", "range")]
    try:
        return list(zip(cases, run_kafka_assignors(cases, timeout_s=600), strict=True))
    except UnavailableError as error:
        pytest.skip(str(error))


def ours(case: Case) -> dict[str, Partitions]:
    found = create_assignor(case.strategy.removeprefix(PREFIX)).assign(case.group)
    return {member: [(topic, number) for topic, number in partitions] for member, partitions in found.items()}


def sorted_shares(assignment: dict[str, Partitions]) -> dict[str, Partitions]:
    return {member: sorted(partitions) for member, partitions in assignment.items()}


def test_range_of_the_coordinator_equals_kafkas(compared: Sequence[tuple[Case, Result]]) -> None:
    chosen = [(case, result) for case, result in compared if case.strategy == f"{PREFIX}range"]
    assert len(chosen) == len(SEEDS)
    for case, result in chosen:
        assert sorted_shares(ours(case)) == sorted_shares(dict(result.assignment)), case


def test_uniform_is_as_balanced_as_kafkas_and_then_moves_no_more(compared: Sequence[tuple[Case, Result]]) -> None:
    chosen = [(case, result) for case, result in compared if case.strategy == f"{PREFIX}uniform"]
    assert len(chosen) == len(SEEDS)
    for case, result in chosen:
        mine, theirs = ours(case), result.assignment
        assert sorted(each for share in mine.values() for each in share) == sorted(
            each for share in theirs.values() for each in share
        ), case
        assert (imbalance(mine), moves(case, mine)) <= (imbalance(theirs), moves(case, theirs)), case
