from collections.abc import Mapping, Sequence

import hypothesis
import hypothesis.strategies as st
import pytest

from odradek.assignors import Assignment, MemberSubscription, RebalanceProtocol, assign, create_assignor
from odradek.assignors.sticky import CooperativeStickyAssignor
from odradek.model import TopicPartition

NAMES = [f"m{number}" for number in range(5)]


def parsed(text: str) -> list[tuple[str, int]]:
    """`t0p0 t0p2` as tuples."""
    return [(word.split("p")[0], int(word.split("p")[1])) for word in text.split()]


def test_a_partition_that_changes_hands_is_first_revoked_and_given_in_the_next_generation() -> None:
    """M3."""
    members = {"C0": ["t"], "C1": ["t"]}
    first = assign("cooperative-sticky", {"t": 4}, members, {"C0": parsed("tp0 tp1 tp2 tp3")})
    assert first == {"C0": parsed("tp0 tp1"), "C1": []}
    second = assign("cooperative-sticky", {"t": 4}, members, first)
    assert second == {"C0": parsed("tp0 tp1"), "C1": parsed("tp2 tp3")}


def test_partitions_of_a_member_that_left_are_given_at_once() -> None:
    """M3."""
    owned = {"C0": parsed("tp0 tp1"), "C1": parsed("tp2 tp3"), "gone": parsed("tp4 tp5")}
    after = assign("cooperative-sticky", {"t": 6}, {"C0": ["t"], "C1": ["t"]}, owned)
    assert after == {"C0": parsed("tp0 tp1 tp4"), "C1": parsed("tp2 tp3 tp5")}


def test_a_partition_that_two_members_claim_is_revoked_by_both() -> None:
    """M3."""
    owned = {"C0": parsed("tp0"), "C1": parsed("tp0 tp1")}
    members = {"C0": ["t"], "C1": ["t"]}
    assert assign("cooperative-sticky", {"t": 2}, members, owned) == {"C0": [], "C1": parsed("tp1")}


def test_a_topic_that_its_owner_unsubscribed_waits_until_it_is_revoked() -> None:
    """M3."""
    members = {"C0": ["u"], "C1": ["t", "u"]}
    owned = {"C0": parsed("tp0")}
    after = assign("cooperative-sticky", {"t": 1, "u": 1}, members, owned)
    assert after == {"C0": parsed("up0"), "C1": []}


@pytest.mark.parametrize(("user_data", "owner"), [(b"\x00\x00\x00\x05", "old"), (b"\x00", "new"), (None, "new")])
def test_members_without_a_generation_in_the_subscription_have_it_in_the_user_data(
    user_data: bytes | None, owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    """M3. Subscriptions of version 1 have owned partitions but no generation."""
    members = {
        "old": MemberSubscription(topics=["t"], owned=parsed("tp0 tp1"), user_data=user_data),
        "new": MemberSubscription(topics=["t"], owned=parsed("tp0 tp1"), generation=4),
    }
    assert assign("cooperative-sticky", {"t": 2}, members)[owner] == parsed("tp0")
    assert len(caplog.records) == (user_data == b"\x00")


def test_cooperative_sticky_serves_eager_groups_too_and_sends_its_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert set(assignor.supported_protocols) == {RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER}
    assert set(create_assignor("sticky").supported_protocols) == {RebalanceProtocol.EAGER}
    assert assignor.user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment([TopicPartition("t", 0)], 6)
    assert assignor.user_data(["t"]) == b"\x00\x00\x00\x06"


def owners_in(assignment: Assignment) -> dict[tuple[str, int], str]:
    return {(topic, number): member for member in assignment for topic, number in assignment[member]}


@hypothesis.given(
    st.dictionaries(st.sampled_from("tuv"), st.integers(1, 8), min_size=1),
    st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from("tuv"), unique=True), min_size=1),
    st.data(),
)
def test_two_rounds_reach_the_placement_of_sticky_and_never_is_a_partition_given_before_it_is_revoked(
    counts: Mapping[str, int], members: Mapping[str, Sequence[str]], data: st.DataObject
) -> None:
    """M3."""
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in NAMES}
    for topic, count in counts.items():
        for number in range(count):
            owned[data.draw(st.sampled_from(NAMES))].append((topic, number))
    had = {partition: member for member in members for partition in owned[member]}
    first = assign("cooperative-sticky", counts, members, owned)
    assert all(had.get(partition, member) == member for partition, member in owners_in(first).items())
    goal = assign("sticky", counts, members, owned)
    assert all(owners_in(goal)[partition] == member for partition, member in owners_in(first).items())
    second = assign("cooperative-sticky", counts, members, first)
    assert sorted(map(len, second.values())) == sorted(map(len, goal.values()))
    assert assign("cooperative-sticky", counts, members, second) == second
