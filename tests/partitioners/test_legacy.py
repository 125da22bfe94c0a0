"""M2. The partitioner of Kafka 0.8, with the example of SPEC 2."""

from collections.abc import Sequence
from random import Random

import pytest

from odradek.partitioners import LegacyPartitioner
from odradek.partitioners.legacy import DEFAULT_REFRESH_MS


class Cluster:
    """A topic with `count` partitions; those of `available` have a leader."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.available: Sequence[int] = range(count)

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        return range(self.count)

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        return self.available


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def partitioner(seed: int = 1) -> tuple[LegacyPartitioner, Clock]:
    clock = Clock()
    return LegacyPartitioner(entropy=Random(seed), monotonic=clock), clock


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    [
        ("1", 3, 1),
        ("2", 3, 2),
        ("3", 3, 0),
        ("", 3, 0),
        ("hello", 1 << 30, 99_162_322),
        ("\U0001f600", 1 << 30, 1_772_899),
        ("aaaaaaa", 1 << 30, 1_236_860_927 % (1 << 30)),  # hashCode is negative
        ("polygenelubricants", 7, 0),  # hashCode is Integer.MIN_VALUE
    ],
)
def test_a_key_goes_to_the_absolute_hash_code_of_its_text(key: str, count: int, partition: int) -> None:
    assert partitioner()[0].partition("t", key.encode(), None, Cluster(count)) == partition


def test_a_key_that_is_not_utf_8_has_a_partition() -> None:
    assert partitioner()[0].partition("t", memoryview(b"\xff"), None, Cluster(1 << 30)) == 0xFFFD  # type: ignore[arg-type]


def test_without_a_key_a_random_partition_is_kept_for_ten_minutes() -> None:
    cluster = Cluster(50)
    firsts = {partitioner(seed)[0].partition("t", None, None, cluster) for seed in range(20)}
    assert len(firsts) > 5
    made, clock = partitioner()
    seen = []
    for _ in range(20):
        seen += [made.partition("t", None, None, cluster)]
        clock.seconds += DEFAULT_REFRESH_MS / 1000 - 0.1
        assert made.partition("t", None, None, cluster) == seen[-1]
        clock.seconds += 0.2
    assert len(set(seen)) > 5


def test_topics_keep_partitions_of_their_own() -> None:
    made, _ = partitioner()
    assert len({made.partition(f"t{number}", None, None, Cluster(50)) for number in range(20)}) > 5


def test_a_kept_partition_without_a_leader_is_replaced() -> None:
    made, _ = partitioner()
    cluster = Cluster(3)
    first = made.partition("t", None, None, cluster)
    cluster.available = [number for number in range(3) if number != first]
    assert (second := made.partition("t", None, None, cluster)) != first
    cluster.available = []
    assert made.partition("t", None, None, cluster) == second
