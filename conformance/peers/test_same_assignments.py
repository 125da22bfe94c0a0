"""M3. Our assignors beside Kafka's on random groups: `ODRADEK_SEEDS=5000 pytest
conformance/peers/test_same_assignments.py` tries so many, `500-1000` those.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import pytest

from bench.peers.kafka_assignors import Case, Partitions, Result, run_kafka_assignors
from odradek.assignors import GroupSubscription, MemberSubscription, create_assignor
from odradek.model import UnavailableError
from tests.world.sampling import seeds

pytestmark = pytest.mark.needs("kafka")

STRATEGIES: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
SEEDS: Final = seeds(300)


def random_group(random: Random) -> GroupSubscription:
    """A group after changes: the owners are those of any earlier assignment.

    All owned partitions exist, and each member has a topic: Kafka's sticky assignors fail for a partition that has
    vanished, and give partitions to a member without a topic.
    """
    counts = {f"t{number}": random.randrange(1, 13) for number in range(random.randrange(1, 6))}
    names = [f"m{number}" for number in range(random.randrange(1, 9))]
    are_equal = random.random() < 0.4
    shared = random.sample(list(counts), random.randrange(1, len(counts) + 1))
    topics = {
        name: shared if are_equal else random.sample(list(counts), random.randrange(1, len(counts) + 1))
        for name in names
    }
    owned: dict[str, Partitions] = {name: [] for name in [*names, "left"]}
    owners = [name for name in owned if random.random() < 0.7]
    is_fresh = random.random() < 0.2 or not owners
    for topic, count in counts.items():
        for number in range(0 if is_fresh else count):
            owner = random.choice(owners)
            if random.random() < 0.9 and topic in topics.get(owner, ()):
                owned[owner].append((topic, number))
    return GroupSubscription(
        partitions=counts,
        members={
            name: MemberSubscription(
                topics=topics[name],
                owned=owned[name],
                generation=5 if owned[name] else -1,
                instance_id=f"i{random.randrange(1000)}-{name}" if random.random() < 0.2 else None,
            )
            for name in names
        },
    )


def with_racks(group: GroupSubscription, random: Random) -> GroupSubscription:
    return GroupSubscription(
        partitions=group.partitions,
        members={
            name: MemberSubscription(
                topics=each.topics, instance_id=each.instance_id, rack=random.choice(["a", "b", "c", None])
            )
            for name, each in group.members.items()
        },
        replica_racks={
            topic: [random.sample("abc", random.randrange(1, 3)) for _ in range(count)]
            for topic, count in group.partitions.items()
        },
    )


def random_cases() -> list[Case]:
    cases = []
    for seed in SEEDS:
        random = Random(seed)
        group = random_group(random)
        cases += [Case(strategy=strategy, group=group) for strategy in STRATEGIES]
        cases.append(Case(strategy="range", group=with_racks(group, random)))
    return cases


@pytest.fixture(scope="module")
def compared() -> Sequence[tuple[Case, Result]]:
    """Random groups with Kafka's assignments of them, all from one JVM."""
    cases = random_cases()
    try:
        return list(zip(cases, run_kafka_assignors(cases, timeout_s=600), strict=True))
    except UnavailableError as error:
        pytest.skip(str(error))


def ours(case: Case) -> dict[str, Partitions]:
    assignment = create_assignor(case.strategy).assign(case.group)
    return {member: [(topic, number) for topic, number in assignment[member]] for member in assignment}


def imbalance(assignment: Mapping[str, Partitions]) -> int:
    """Return Kafka's balance score: the sum of differences between all pairs of members."""
    loads = [len(partitions) for partitions in assignment.values()]
    return sum(abs(one - other) for place, one in enumerate(loads) for other in loads[place + 1 :])


def moves(case: Case, assignment: Mapping[str, Partitions]) -> int:
    had = {partition: member for member, each in case.group.members.items() for partition in each.owned}
    return sum(had.get(partition, member) != member for member in assignment for partition in assignment[member])


def withheld(case: Case, assignment: Mapping[str, Partitions]) -> int:
    """Return how many partitions wait until another member has revoked them."""
    topics = {topic for member in case.group.members.values() for topic in member.topics}
    return sum(case.group.partitions[topic] for topic in topics) - sum(map(len, assignment.values()))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_range_and_roundrobin_equal_kafkas(strategy: str, compared: Sequence[tuple[Case, Result]]) -> None:
    """M3."""
    chosen = [(case, result) for case, result in compared if case.strategy == strategy]
    assert len(chosen) >= len(SEEDS)
    for case, result in chosen:
        theirs = {member: sorted(partitions) for member, partitions in result.assignment.items()}
        assert {member: sorted(partitions) for member, partitions in ours(case).items()} == theirs, case


def test_sticky_is_as_balanced_as_kafkas_and_then_moves_no_more(compared: Sequence[tuple[Case, Result]]) -> None:
    """M3. An equal balance takes as few moves or fewer; a better one may need more."""
    chosen = [(case, result) for case, result in compared if case.strategy == "sticky"]
    assert len(chosen) == len(SEEDS)
    for case, result in chosen:
        assert sorted(p for each in ours(case).values() for p in each) == sorted(
            p for each in result.assignment.values() for p in each
        )
        mine, theirs = ours(case), result.assignment
        assert (imbalance(mine), moves(case, mine)) <= (imbalance(theirs), moves(case, theirs)), case


def test_cooperative_sticky_gives_no_partition_early_and_revokes_no_more_than_kafkas(
    compared: Sequence[tuple[Case, Result]],
) -> None:
    """M3. With the same balance as Kafka's, fewer partitions or as few wait for their owner."""
    chosen = [(case, result) for case, result in compared if case.strategy == "cooperative-sticky"]
    eager = [result for case, result in compared if case.strategy == "sticky"]
    assert len(chosen) == len(eager) == len(SEEDS)
    for (case, result), goal in zip(chosen, eager, strict=True):
        mine = ours(case)
        assert moves(case, mine) == 0, case
        best = ours(Case(strategy="sticky", group=case.group))
        if imbalance(best) == imbalance(goal.assignment):
            assert withheld(case, mine) <= withheld(case, result.assignment), case
