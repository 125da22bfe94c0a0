"""The sticky assignors keep each topic even where partitions change hands."""

from collections.abc import Mapping

import hypothesis
import hypothesis.strategies as st
import pytest

from odradek.assignors import Assignment, assign

Rows = dict[str, list[int]]
STICKY = ["sticky", "cooperative-sticky", "uniform"]


def rows(assignment: Assignment, topics: Mapping[str, int]) -> Rows:
    """Return each member's partitions of each topic."""
    return {m: [sum(each == topic for each, _ in assignment[m]) for topic in topics] for m in assignment}


def spread(rows: Rows) -> int:
    """Return the largest difference of two members in a topic."""
    return max(max(counts) - min(counts) for counts in zip(*rows.values(), strict=True))


def evened(before: Rows, after: Rows) -> Rows:
    """Return the rows with the least sum of squares for the totals of `after` and its fewest moves from `before`.

    Members that have fewer partitions than before only give, those that have more only take. Counts move along a
    cycle of members and topics as long as one lowers the sum (Klein 1967).
    """
    best = {member: list(row) for member, row in after.items()}
    while cycle := negative_cycle(before, best):
        for source, target in cycle:
            if isinstance(source, str):
                best[source][target] -= 1
            else:
                best[target][source] += 1
    return best


def negative_cycle(before: Rows, rows: Rows) -> list[tuple[str, int] | tuple[int, str]]:
    arcs = []
    for member, row in rows.items():
        had = before.get(member, [0] * len(row))
        gives = sum(had) > sum(row)
        for topic, (count, old) in enumerate(zip(row, had, strict=True)):
            if sum(had) != sum(row) and (not gives or count < old):
                arcs.append((topic, member, 2 * count + 1))
            if sum(had) != sum(row) and count > (0 if gives else old):
                arcs.append((member, topic, 1 - 2 * count))
    distance = dict.fromkeys([node for arc in arcs for node in arc[:2]], 0)
    via = {}
    changed = None
    for _ in range(len(distance) + 1):
        changed = None
        for source, target, cost in arcs:
            if distance[source] + cost < distance[target]:
                distance[target] = distance[source] + cost
                via[target] = source
                changed = target
    if changed is None:
        return []
    for _ in distance:
        changed = via[changed]
    cycle = [(via[changed], changed)]
    while cycle[-1][0] != changed:
        cycle.append((via[cycle[-1][0]], cycle[-1][0]))
    return cycle


@pytest.mark.parametrize("strategy", STICKY)
@pytest.mark.parametrize("counts", [{"a": 12, "b": 12}, {"a": 12, "b": 60}, dict.fromkeys("abcdefgh", 2)])
def test_a_member_that_joins_gets_its_share_of_each_topic(strategy: str, counts: dict[str, int]) -> None:
    """M3."""
    before = assign(strategy, counts, {"C0": list(counts)})
    members = {key: list(counts) for key in ["C0", "C1"]}
    after = assign(strategy, counts, members, before)
    after = assign(strategy, counts, members, after)  # cooperative-sticky hands over in the second generation
    assert rows(after, counts) == {key: [count // 2 for count in counts.values()] for key in members}


def test_members_that_each_give_one_partition_give_of_different_topics() -> None:
    """M3."""
    counts = dict.fromkeys("abcdefghij", 9)
    nine = [f"C{number}" for number in range(9)]
    before = assign("sticky", counts, {key: list(counts) for key in nine})
    after = assign("sticky", counts, {key: list(counts) for key in [*nine, "C9"]}, before)
    assert sorted(rows(after, counts)["C9"]) == [0, *[1] * 9]


@hypothesis.given(
    st.lists(st.integers(1, 20), min_size=2, max_size=6), st.integers(1, 5), st.lists(st.integers(-5, 3), max_size=6)
)
def test_after_a_join_a_topic_differs_at_most_by_one_more_than_balance_and_fewest_moves_force(
    sizes: list[int], first: int, steps: list[int]
) -> None:
    """M3. A step is the number of members that join, or the member that leaves."""
    counts = {f"t{number}": size for number, size in enumerate(sizes)}
    members = {f"m{number}": list(counts) for number in range(first)}
    assignment = assign("sticky", counts, members)
    for round_number, step in enumerate([1, *steps, 1]):
        if step < 0 and len(members) > 1:
            del members[sorted(members)[step % len(members)]]
        members |= {f"n{round_number}{number}": list(counts) for number in range(step)}
        before, assignment = rows(assignment, counts), assign("sticky", counts, members, assignment)
        if step > 0:
            now = rows(assignment, counts)
            assert spread(now) <= spread(evened(before, now)) + 1
