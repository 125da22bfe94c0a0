from collections.abc import Collection, Mapping
from types import SimpleNamespace

import hypothesis
import hypothesis.strategies as st
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from odradek.assignors import Assignment, MemberSubscription, assign
from odradek.model import TopicPartition


def parsed(text: str) -> list[tuple[str, int]]:
    """`t0p0 t0p2` as tuples."""
    return [(word.split("p")[0], int(word.split("p")[1])) for word in text.split()]


def owners(assignment: Assignment) -> dict[str, str]:
    return {f"{topic}-{number}": member for member in assignment for topic, number in assignment[member]}


def test_range_gives_consecutive_partitions_and_the_first_members_more() -> None:
    """M3."""
    assert assign("range", {"t": 5}, {"C0": ["t"], "C1": ["t"]}) == {
        "C0": parsed("tp0 tp1 tp2"),
        "C1": parsed("tp3 tp4"),
    }


def test_range_does_so_for_each_topic() -> None:
    """M3."""
    topics = ["t0", "t1"]
    assert assign("range", {"t0": 3, "t1": 3}, {"C0": topics, "C1": topics}) == {
        "C0": parsed("t0p0 t0p1 t1p0 t1p1"),
        "C1": parsed("t0p2 t1p2"),
    }


def test_roundrobin_deals_partitions_out_in_turn() -> None:
    """M3."""
    assert assign("roundrobin", {"t": 5}, {"C0": ["t"], "C1": ["t"]}) == {
        "C0": parsed("tp0 tp2 tp4"),
        "C1": parsed("tp1 tp3"),
    }


def test_roundrobin_passes_over_members_that_do_not_subscribe() -> None:
    """M3."""
    members = {"C0": ["T0", "T1"], "C1": ["T1", "T2"], "C2": ["T2", "T0"]}
    assert owners(assign("roundrobin", {"T0": 3, "T1": 2, "T2": 4}, members)) == {
        "T0-0": "C0",
        "T0-1": "C2",
        "T0-2": "C0",
        "T1-0": "C1",
        "T1-1": "C0",
        "T2-0": "C1",
        "T2-1": "C2",
        "T2-2": "C1",
        "T2-3": "C2",
    }


def test_roundrobin_goes_on_over_all_topics() -> None:
    """M3."""
    topics = ["t0", "t1"]
    assert assign("roundrobin", {"t0": 3, "t1": 3}, {"C0": topics, "C1": topics}) == {
        "C0": parsed("t0p0 t0p2 t1p1"),
        "C1": parsed("t0p1 t1p0 t1p2"),
    }


def test_roundrobin_may_be_uneven_when_subscriptions_differ() -> None:
    """M3."""
    members = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert assign("roundrobin", {"t0": 1, "t1": 2, "t2": 3}, members) == {
        "C0": parsed("t0p0"),
        "C1": parsed("t1p0"),
        "C2": parsed("t1p1 t2p0 t2p1 t2p2"),
    }


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_static_members_come_first_by_instance_id(strategy: str) -> None:
    """M3."""
    members = {
        "a": MemberSubscription(topics=["t"]),
        "y": MemberSubscription(topics=["t"], instance_id="2"),
        "z": MemberSubscription(topics=["t"], instance_id="1"),
    }
    assignment = assign(strategy, {"t": 3}, members)
    assert list(assignment) == ["z", "y", "a"]
    assert assignment == {"z": parsed("tp0"), "y": parsed("tp1"), "a": parsed("tp2")}


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_every_member_is_there_and_missing_topics_are_not(strategy: str) -> None:
    members: dict[str, list[str]] = {"a": ["t", "gone"], "b": [], "c": ["gone"]}
    assert assign(strategy, {"t": 1, "unread": 5, "empty": 0}, members) == {"a": parsed("tp0"), "b": [], "c": []}


class ClusterOf:
    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.partitions[topic])) if topic in self.partitions else None


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, list[str]]]:
    names = [f"t{number}" for number in range(draw(st.integers(1, 5)))]
    partitions = {name: draw(st.integers(1, 12)) for name in names}
    members = {
        f"m{number}": draw(st.lists(st.sampled_from(names), unique=True)) for number in range(draw(st.integers(1, 7)))
    }
    return partitions, members


@hypothesis.given(groups())
def test_both_give_every_partition_of_a_subscribed_topic_to_one_subscriber(
    group: tuple[dict[str, int], dict[str, list[str]]],
) -> None:
    """M3."""
    partitions, members = group
    wanted = {topic for topics in members.values() for topic in topics}
    for strategy in ("range", "roundrobin"):
        assignment = assign(strategy, partitions, members)
        assert list(assignment) == sorted(members)
        given = [partition for member in assignment for partition in assignment[member]]
        assert sorted(given) == sorted((topic, n) for topic in wanted for n in range(partitions[topic]))
        assert all(topic in members[member] for member in assignment for topic, _ in assignment[member])


@hypothesis.given(groups())
def test_roundrobin_is_the_plain_ring_written_down(group: tuple[dict[str, int], dict[str, list[str]]]) -> None:
    """M3."""
    partitions, members = group
    ring = sorted(members)
    expected: dict[str, list[tuple[str, int]]] = {member: [] for member in ring}
    place = 0
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        for number in range(partitions[topic]):
            while topic not in members[ring[place % len(ring)]]:
                place += 1
            expected[ring[place % len(ring)]].append((topic, number))
            place += 1
    assert assign("roundrobin", partitions, members) == expected


def test_a_lazy_assignment_behaves_like_lists() -> None:
    assignment = assign("range", {"a": 4, "b": 3}, {"m": ["a", "b"], "n": ["a"]})
    mine = assignment["m"]
    assert len(mine) == 5
    assert mine[0] == TopicPartition("a", 0)
    assert mine[2] == mine[-3] == TopicPartition("b", 0)
    assert mine[1:3] == [("a", 1), ("b", 0)]
    assert ("b", 2) in mine
    assert mine != [("a", 0)]
    assert repr(assignment["n"]).startswith("[TopicPartition(topic='a', partition=2)")
    assert dict(assignment) == {"m": list(mine), "n": [("a", 2), ("a", 3)]}
    with pytest.raises(IndexError):
        mine[5]
    with pytest.raises(KeyError):
        assignment["nobody"]


def test_an_ordinary_input_is_two_thousand_members_and_a_million_partitions() -> None:
    """M3."""
    partitions = {f"t{number:03}": 2000 for number in range(500)}
    members = {f"m{number:04}": list(partitions) for number in range(2000)}
    for strategy in ("range", "roundrobin"):
        assignment = assign(strategy, partitions, members)
        assert len(assignment) == 2000
        assert {len(assignment[member]) for member in ("m0000", "m0777", "m1999")} == {500}


def racked(rack: str | None) -> MemberSubscription:
    return MemberSubscription(topics=["t"], rack=rack)


def test_range_prefers_partitions_on_the_members_rack_but_keeps_the_balance() -> None:
    """M3."""
    racks: dict[str, list[Collection[str]]] = {"t": [["b"], ["a"], ["b"], ["a"]]}
    members = {"m0": racked("a"), "m1": racked("b")}
    assert assign("range", {"t": 4}, members, racks=racks) == {"m0": parsed("tp1 tp3"), "m1": parsed("tp0 tp2")}
    three_on_a: dict[str, list[Collection[str]]] = {"t": [["a"], ["a"], ["a"], ["b"]]}
    assert assign("range", {"t": 4}, members, racks=three_on_a) == {"m0": parsed("tp0 tp1"), "m1": parsed("tp2 tp3")}


def test_range_ignores_racks_that_hold_every_partition() -> None:
    racks: dict[str, list[Collection[str]]] = {"t": [["a", "b"]] * 4}
    members = {"m0": racked("b"), "m1": racked("a")}
    assert assign("range", {"t": 4}, members, racks=racks) == {"m0": parsed("tp0 tp1"), "m1": parsed("tp2 tp3")}


def test_range_keeps_topics_of_equal_shape_together_before_it_looks_at_racks() -> None:
    """M3."""
    members = {
        "m0": MemberSubscription(topics=["x", "y"], rack="a"),
        "m1": MemberSubscription(topics=["x", "y"], rack="b"),
    }
    racks: dict[str, list[Collection[str]]] = {"x": [["b"], ["a"]], "y": [["b"], ["a"]]}
    together = {"m0": parsed("xp1 yp1"), "m1": parsed("xp0 yp0")}
    assert assign("range", {"x": 2, "y": 2}, members, racks=racks) == together
    apart: dict[str, list[Collection[str]]] = {"x": [["b"], ["a"]], "y": [["a"], ["b"]]}
    unmoved = {"m0": parsed("xp0 yp0"), "m1": parsed("xp1 yp1")}
    assert assign("range", {"x": 2, "y": 2}, members, racks=apart) == unmoved


@hypothesis.given(groups())
def test_another_clients_range_agrees(group: tuple[dict[str, int], dict[str, list[str]]]) -> None:
    """M3. The assignment equals that of a leading member with another language's client."""
    partitions, members = group
    joined = {member: SimpleNamespace(subscription=topics) for member, topics in members.items()}
    theirs = RangePartitionAssignor.assign(ClusterOf(partitions), joined)
    ours = assign("range", partitions, members)
    for member in members:
        expected = [(topic, number) for topic, numbers in theirs[member].assignment for number in numbers]
        assert ours[member] == expected
