"""M4. The assignors of generation 1, with the examples of SPEC 4."""

import pytest

from odradek.assignors import GroupSubscription, MemberSubscription, assign, create_assignor
from odradek.model.java_hash import java_hash


def shares(strategy: str, partitions: int, threads: list[str]) -> list[list[int]]:
    """The partitions of one topic, for each thread."""
    given = assign(strategy, {"t": partitions}, {thread: ["t"] for thread in threads})
    return [[place.partition for place in given[thread]] for thread in threads]


@pytest.mark.parametrize("strategy", ["zookeeper-range", "ceiling-range"])
def test_four_partitions_are_two_for_each_of_two_threads(strategy: str) -> None:
    assert shares(strategy, 4, ["C0", "C1"]) == [[0, 1], [2, 3]]


def test_three_threads_share_four_partitions_as_each_rule_says() -> None:
    threads = ["c0-0", "c1-0", "c2-0"]
    assert shares("zookeeper-range", 4, threads) == [[0, 1], [2], [3]]
    assert shares("ceiling-range", 4, threads) == [[0, 1], [2, 3], []]


def test_three_consumers_of_two_threads_leave_the_third_idle() -> None:
    threads = [f"c{consumer}-{thread}" for consumer in range(3) for thread in range(2)]
    assert shares("zookeeper-range", 4, threads) == [[0], [1], [2], [3], [], []]
    assert shares("ceiling-range", 4, threads) == [[0], [1], [2], [3], [], []]


def test_threads_are_sorted_as_strings() -> None:
    threads = [f"c-{number}" for number in range(11)]
    assert shares("zookeeper-range", 11, threads)[10] == [2], "c-10 is before c-2"


def test_each_topic_is_shared_by_its_own_threads() -> None:
    given = assign("zookeeper-range", {"a": 2, "b": 2}, {"c-0": ["a", "b"], "c-1": ["b"]})
    assert {thread: list(given[thread]) for thread in given} == {
        "c-0": [("a", 0), ("a", 1), ("b", 0)],
        "c-1": [("b", 1)],
    }


@pytest.mark.parametrize(
    ("text", "hash_code"),
    [("", 0), ("a", 97), ("[t,0]", 87540032), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)],
)
def test_hash_codes_are_javas(text: str, hash_code: int) -> None:
    assert java_hash(text) == hash_code


def test_roundrobin_deals_out_by_hash_codes() -> None:
    threads = ["c0-0", "c0-1", "c1-0"]
    given = assign("zookeeper-roundrobin", {"a": 3, "b": 2}, {thread: ["a", "b"] for thread in threads})
    order = [given[threads[turn % 3]][turn // 3] for turn in range(5)]
    assert order == sorted(order, key=lambda place: java_hash(f"[{place.topic},{place.partition}]"))
    assert len(set(order)) == 5


def test_roundrobin_lets_consumers_have_different_numbers_of_threads() -> None:
    given = assign("zookeeper-roundrobin", {"t": 3}, {"c0-0": ["t"], "c0-1": ["t"], "c1-0": ["t"]})
    assert sorted(len(given[thread]) for thread in given) == [1, 1, 1]


@pytest.mark.parametrize("partitions", [{"a": 1, "b": 1}, {"a": 1}])
def test_roundrobin_refuses_topics_with_different_threads_in_the_words_of_kafka_0_8(partitions: dict[str, int]) -> None:
    """Kafka 0.8 also compares the threads of topics that do not exist."""
    with pytest.raises(ValueError, match="Round-robin assignment") as refused:
        assign("zookeeper-roundrobin", partitions, {"c0-0": ["a", "b"], "c0-1": ["b"]})
    assert str(refused.value).splitlines() == [
        (
            "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, "
            "AND if the stream counts across topics are identical for a given consumer instance."
        ),
        "Topic b has the following available consumer streams: [c0-0, c0-1]",
        "Topic a has the following available consumer streams: [c0-0]",
    ]


def test_roundrobin_orders_by_the_hash_codes_of_partition_ids() -> None:
    """The codes of [t,0], [t,1], [t,2] and [t,27] are 87540032, 87540063, 87540094 and -1581225467 in Java."""
    members = {f"c{number}-0": MemberSubscription(topics=["t"]) for number in range(2)}
    group = GroupSubscription(partitions={"t": 4}, members=members, partition_ids={"t": (0, 1, 2, 27)})
    given = create_assignor("zookeeper-roundrobin").assign(group)
    assert given == {"c0-0": [("t", 3), ("t", 1)], "c1-0": [("t", 0), ("t", 2)]}


def test_roundrobin_of_nothing_gives_nothing() -> None:
    assert assign("zookeeper-roundrobin", {}, {"c-0": ["t"]}) == {"c-0": []}
