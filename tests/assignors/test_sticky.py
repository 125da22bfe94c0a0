from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import hypothesis
import hypothesis.strategies as st
import pytest

from odradek.assignors import Assignment, GroupSubscription, MemberSubscription, assign, create_assignor
from odradek.assignors.sticky import StickyAssignor
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import StickyUserData, decode_sticky_user_data, encode_sticky_user_data

Owned = dict[str, list[tuple[str, int]]]
Group = tuple[dict[str, int], dict[str, list[str]]]


def parsed(text: str) -> list[tuple[str, int]]:
    """`t0p0 t0p2` as tuples."""
    return [(word.split("p")[0], int(word.split("p")[1])) for word in text.split()]


def plain(assignment: Assignment) -> Owned:
    return {member: [(topic, number) for topic, number in assignment[member]] for member in assignment}


def moves(owned: Mapping[str, Sequence[tuple[str, int]]], after: Assignment) -> int:
    """Return how many partitions that a remaining member had are another's now."""
    had = {partition: member for member in owned for partition in owned[member] if member in after}
    return sum(had.get((topic, number), member) != member for member in after for topic, number in after[member])


def is_balanced(members: Mapping[str, Sequence[str]], assignment: Assignment) -> bool:
    """SPEC 3: counts differ by at most 1, or the smaller member has no partition that it may take from the larger."""
    return all(
        len(assignment[larger]) - len(assignment[smaller]) < 2
        or all(topic not in members[smaller] for topic, _ in assignment[larger])
        for smaller in assignment
        for larger in assignment
    )


def squares(loads: Sequence[int]) -> int:
    return sum(load * load for load in loads)


@st.composite
def groups(draw: st.DrawFn, topics: int = 5, partitions: int = 12, members: int = 7) -> Group:
    names = [f"t{number}" for number in range(draw(st.integers(1, topics)))]
    subscriptions = st.lists(st.sampled_from(names), unique=True)
    return (
        {name: draw(st.integers(1, partitions)) for name in names},
        {f"m{number}": draw(subscriptions) for number in range(draw(st.integers(1, members)))},
    )


@st.composite
def groups_with_owners(draw: st.DrawFn, **sizes: int) -> tuple[dict[str, int], dict[str, list[str]], Owned]:
    """A group and the assignment of any past one: also to members that have left or do not subscribe any longer."""
    counts, members = draw(groups(**sizes))
    owned: Owned = {member: [] for member in [*members, "left"]}
    for topic, count in counts.items():
        for number in range(count + 1):
            owner = draw(st.sampled_from([None, *owned]))
            if owner is not None:
                owned[owner].append((topic, number))
    return counts, members, owned


# ---- worked examples ------------------------------------------------------------------------------------------------


def test_sticky_deals_fresh_partitions_out_in_turn() -> None:
    """M3."""
    topics = ["t0", "t1", "t2", "t3"]
    assert assign("sticky", dict.fromkeys(topics, 2), dict.fromkeys(["C0", "C1", "C2"], topics)) == {
        "C0": parsed("t0p0 t1p1 t3p0"),
        "C1": parsed("t0p1 t2p0 t3p1"),
        "C2": parsed("t1p0 t2p1"),
    }


def test_members_keep_all_they_had_when_another_leaves() -> None:
    """M3."""
    topics = ["t0", "t1", "t2", "t3"]
    counts = dict.fromkeys(topics, 2)
    before = assign("sticky", counts, dict.fromkeys(["C0", "C1", "C2"], topics))
    after = assign("sticky", counts, dict.fromkeys(["C0", "C2"], topics), owned=before)
    assert all(set(before[member]) <= set(after[member]) for member in ("C0", "C2"))
    assert [len(after[member]) for member in after] == [4, 4]


def test_sticky_is_balanced_where_roundrobin_is_not() -> None:
    """M3."""
    counts = {"t0": 1, "t1": 2, "t2": 3}
    members = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert assign("sticky", counts, members) == {
        "C0": parsed("t0p0"),
        "C1": parsed("t1p0 t1p1"),
        "C2": parsed("t2p0 t2p1 t2p2"),
    }


def test_balance_wins_over_stickiness() -> None:
    """M3."""
    members = {"C0": ["t"], "C1": ["t"]}
    owned = {"C0": parsed("tp0 tp1 tp2 tp3")}
    assert assign("sticky", {"t": 4}, members, owned) == {"C0": parsed("tp0 tp1"), "C1": parsed("tp2 tp3")}


def test_partitions_that_vanished_and_topics_no_longer_subscribed_are_dropped_first() -> None:
    """M3."""
    owned = {"C0": parsed("tp0 tp5 gonep0 up0 up1"), "C1": parsed("tp-1")}
    members = {"C0": ["t", "gone"], "C1": ["t", "u"]}
    assert assign("sticky", {"t": 3, "u": 2}, members, owned) == {
        "C0": parsed("tp0 tp1 tp2"),
        "C1": parsed("up0 up1"),
    }


@pytest.mark.parametrize(
    ("older", "newer", "owner"), [(3, 4, "C1"), (4, 3, "C0"), (-1, 0, "C1")]
)  # fmt: skip
@pytest.mark.parametrize("strategy", ["sticky", "uniform"])
def test_of_two_claims_the_newer_generation_wins(strategy: str, older: int, newer: int, owner: str) -> None:
    """M3."""
    claim = parsed("tp2 tp3")
    members = {
        "C0": MemberSubscription(topics=["t"], owned=claim, generation=older),
        "C1": MemberSubscription(topics=["t"], owned=claim, generation=newer),
    }
    assert assign(strategy, {"t": 4}, members)[owner] == claim


def test_of_two_claims_with_equal_generations_both_are_void() -> None:
    """M3."""
    disputed = {"C0": parsed("tp0 tp3"), "C1": parsed("tp1 tp2 tp3")}
    members = {member: ["t"] for member in ("C0", "C1", "C2")}
    # Were tp3 still C1's, it would keep two of its three.
    assert assign("sticky", {"t": 6}, members, disputed) == {
        "C0": parsed("tp0 tp3"),
        "C1": parsed("tp1 tp2"),
        "C2": parsed("tp4 tp5"),
    }
    three = {
        "C0": MemberSubscription(topics=["t"], owned=parsed("tp0"), generation=2),
        "C1": MemberSubscription(topics=["t"], owned=parsed("tp0"), generation=2),
        "C2": MemberSubscription(topics=["t"], owned=parsed("tp0"), generation=1),
    }
    assert assign("sticky", {"t": 1}, three)["C0"] == parsed("tp0")


def test_static_members_come_first_by_instance_id() -> None:
    """M3."""
    members = {
        "a": MemberSubscription(topics=["t"]),
        "z": MemberSubscription(topics=["t"], instance_id="1"),
    }
    assert list(assign("sticky", {"t": 3}, members).items()) == [("z", parsed("tp0 tp2")), ("a", parsed("tp1"))]


def test_the_best_balance_may_need_a_chain_of_moves() -> None:
    """M3. C2 can't take from C0 directly: C1 takes from C0, and C2 from C1."""
    members = {"C0": ["t"], "C1": ["t", "u"], "C2": ["u"]}
    owned = {"C0": parsed("tp0 tp1 tp2"), "C1": parsed("up0 up1"), "C2": parsed("up2")}
    after = assign("sticky", {"t": 3, "u": 3}, members, owned)
    assert [len(after[member]) for member in after] == [2, 2, 2]
    assert moves(owned, after) == 2


# ---- properties -----------------------------------------------------------------------------------------------------


@hypothesis.given(groups_with_owners())
def test_sticky_is_valid_balanced_deterministic_and_moves_nothing_twice(
    group: tuple[dict[str, int], dict[str, list[str]], Owned],
) -> None:
    """M3."""
    counts, members, owned = group
    after = assign("sticky", counts, members, owned)
    wanted = {topic for topics in members.values() for topic in topics}
    given = [partition for member in after for partition in after[member]]
    assert list(after) == sorted(members)
    assert sorted(given) == sorted((topic, n) for topic in wanted for n in range(counts[topic]))
    assert all(topic in members[member] for member in after for topic, _ in after[member])
    assert is_balanced(members, after)
    shuffled = dict(sorted(members.items(), reverse=True))
    assert assign("sticky", dict(reversed(counts.items())), shuffled, owned) == after
    assert assign("sticky", counts, members, after) == after
    assert assign("sticky", counts, members, plain(after)) == after


@hypothesis.given(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_equal_subscriptions_move_no_more_than_the_balance_needs(count: int, size: int, random: Random) -> None:
    """M3."""
    members = {f"m{number}": ["t"] for number in range(size)}
    owned: Owned = {member: [] for member in members}
    for number in range(count):
        owned[random.choice(list(owned))].append(("t", number))
    share, more = divmod(count, size)
    had = sorted((len(each) for each in owned.values()), reverse=True)
    needed = sum(max(0, each - share - (place < more)) for place, each in enumerate(had))
    assert moves(owned, assign("sticky", {"t": count}, members, owned)) == needed


@hypothesis.given(groups_with_owners(topics=3, partitions=2, members=3))
def test_no_other_assignment_is_better_balanced_or_as_balanced_with_fewer_moves(
    group: tuple[dict[str, int], dict[str, list[str]], Owned],
) -> None:
    """M3. All assignments are tried."""
    counts, members, owned = group
    partitions = [(t, n) for t in counts if any(t in each for each in members.values()) for n in range(counts[t])]
    had = {p: member for member in members for p in owned[member] if p in partitions and p[0] in members[member]}
    best = min(
        (
            squares([owners.count(member) for member in members]),
            sum(had.get(p, owner) != owner for p, owner in zip(partitions, owners, strict=True)),
        )
        for owners in product(*[[m for m in members if topic in members[m]] for topic, _ in partitions])
    )
    after = assign("sticky", counts, members, owned)
    moved = sum(had.get((topic, n), member) != member for member in after for topic, n in after[member])
    assert (squares([len(after[member]) for member in after]), moved) == best


def test_a_group_too_large_for_the_exact_search_is_balanced_and_moves_nothing_twice() -> None:
    random = Random(7)
    counts = {f"t{number}": random.randrange(1, 30) for number in range(200)}
    members = {f"m{number:03}": random.sample(sorted(counts), 40) for number in range(400)}
    first = assign("sticky", counts, members)
    assert is_balanced(members, first)
    remaining = {member: topics for member, topics in members.items() if member != "m007"}
    second = assign("sticky", counts, remaining, first)
    assert is_balanced(remaining, second)
    assert moves(first, second) <= len(first["m007"])
    assert assign("sticky", counts, remaining, second) == second


# ---- racks ----------------------------------------------------------------------------------------------------------


def racked(members: Mapping[str, str | None], topics: Sequence[str]) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(topics=topics, rack=rack) for member, rack in members.items()}


def test_sticky_prefers_partitions_on_the_members_rack_but_keeps_the_balance() -> None:
    """M3."""
    members = racked({"m0": "a", "m1": "b"}, ["t"])
    racks = {"t": [["b"], ["a"], ["b"], ["a"]]}
    assert assign("sticky", {"t": 4}, members, racks=racks) == {"m0": parsed("tp1 tp3"), "m1": parsed("tp0 tp2")}
    three_on_a = {"t": [["a"], ["a"], ["a"], ["b"]]}
    after = assign("sticky", {"t": 4}, members, racks=three_on_a)
    assert [len(after[member]) for member in after] == [2, 2]
    assert ("t", 3) in after["m1"]


def test_a_partition_moves_to_a_member_on_its_rack_and_stays_there() -> None:
    """M3."""
    racks = {"t": [["a"], ["b"]]}
    members = racked({"m0": "a", "m1": "b"}, ["t"])
    swapped = {"m0": parsed("tp1"), "m1": parsed("tp0")}
    after = assign("sticky", {"t": 2}, members, swapped, racks=racks)
    assert after == {"m0": parsed("tp0"), "m1": parsed("tp1")}
    assert assign("sticky", {"t": 2}, members, after, racks=racks) == after


@hypothesis.given(groups_with_owners(topics=2, partitions=3, members=3), st.randoms(use_true_random=False))
def test_racks_come_after_balance_and_before_stickiness(
    group: tuple[dict[str, int], dict[str, list[str]], Owned], random: Random
) -> None:
    """M3. All assignments are tried."""
    counts, topics, owned = group
    racks = {topic: [random.sample("ab", random.randrange(3)) for _ in range(counts[topic])] for topic in counts}
    rack_of = {member: random.choice(["a", "b", None]) for member in topics}
    members = {member: MemberSubscription(topics=topics[member], rack=rack_of[member]) for member in topics}
    partitions = [(t, n) for t in counts if any(t in each for each in topics.values()) for n in range(counts[t])]
    had = {p: member for member in topics for p in owned[member] if p in partitions and p[0] in topics[member]}

    def score(owner_of: Mapping[tuple[str, int], str]) -> tuple[int, int, int]:
        owners = list(owner_of.values())
        away = sum(
            rack_of[owner] is not None and rack_of[owner] not in racks[topic][n]
            for (topic, n), owner in owner_of.items()
        )
        moved = sum(had.get(p, owner) != owner for p, owner in owner_of.items())
        return squares([owners.count(member) for member in topics]), away, moved

    best = min(
        score(dict(zip(partitions, owners, strict=True)))
        for owners in product(*[[m for m in topics if topic in topics[m]] for topic, _ in partitions])
    )
    after = assign("sticky", counts, members, owned, racks=racks)
    assert score({(topic, n): member for member in after for topic, n in after[member]}) == best


# ---- user data ------------------------------------------------------------------------------------------------------


def test_user_data_are_those_of_kafka() -> None:
    """M3. Java writes the same bytes for two partitions of `t` in generation 7."""
    data = StickyUserData(partitions=(TopicPartition("t", 0), TopicPartition("t", 2)), generation=7)
    wire = bytes.fromhex("00000001 0001 74 00000002 00000000 00000002 00000007")
    assert encode_sticky_user_data(data) == wire
    assert decode_sticky_user_data(wire) == data
    version_0 = StickyUserData(partitions=data.partitions, generation=-1)
    assert decode_sticky_user_data(wire[:-4]) == version_0


def test_a_member_sends_its_last_assignment_in_its_user_data() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(["t"]) is None
    assignor.on_assignment([TopicPartition("t", 1)], 3)
    members = {
        "C0": MemberSubscription(topics=["t"]),
        "C1": MemberSubscription(topics=["t"], user_data=assignor.user_data(["t"])),
    }
    assert assign("sticky", {"t": 2}, members) == {"C0": parsed("tp0"), "C1": parsed("tp1")}


def test_malformed_user_data_count_as_no_owned_partitions_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    members = {
        "C0": MemberSubscription(topics=["t"], user_data=b"\x00\x00\x00\x07\x00"),
        "C1": MemberSubscription(topics=["t"], owned=parsed("tp0")),
    }
    assert assign("sticky", {"t": 2, "empty": 0}, members) == {"C0": parsed("tp1"), "C1": parsed("tp0")}
    assert len(caplog.records) == 1
    assert "Member C0 is treated as without owned partitions" in caplog.text


def test_an_assignment_of_numbers_behaves_like_lists() -> None:
    assignment = assign("sticky", {"a": 4, "b": 3}, {"m": ["a", "b"], "n": ["a"]})
    mine = assignment["m"]
    assert len(mine) == 4
    assert mine[0] == TopicPartition("a", 0)
    assert mine[-1] == TopicPartition("b", 2)
    assert mine[1:3] == [("b", 0), ("b", 1)]
    assert ("b", 2) in mine
    assert mine != [("a", 0)]
    assert repr(assignment["n"]).startswith("[TopicPartition(topic='a', partition=1)")
    with pytest.raises(IndexError):
        mine[5]


def test_an_earlier_assignment_is_understood_when_topics_came_and_went() -> None:
    members = {"C0": ["a", "b", "c"], "C1": ["a", "b", "c"]}
    before = assign("sticky", {"a": 2, "c": 4}, members)
    after = assign("sticky", {"b": 2, "c": 3}, members, before)
    assert moves(before, after) == 0
    assert assign("sticky", {"b": 2, "c": 3}, members, plain(before)) == after
    as_runs = assign("range", {"b": 2, "c": 3}, members)
    assert moves(as_runs, assign("sticky", {"b": 2, "c": 3}, members, as_runs)) == 0


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "uniform"])
def test_members_of_topics_that_do_not_exist_get_nothing(name: str) -> None:
    members = {each: MemberSubscription(topics=frozenset({"late"})) for each in ("a", "b")}
    found = create_assignor(name).assign(GroupSubscription(partitions={}, members=members))
    assert {member: list(partitions) for member, partitions in found.items()} == {"a": [], "b": []}
