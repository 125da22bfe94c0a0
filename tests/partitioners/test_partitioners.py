from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random

import hypothesis
import hypothesis.strategies as st
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2

from odradek.model import ConfigurationError
from odradek.partitioners import (
    PARTITIONER_NAMES,
    AdaptivePartitioner,
    BatchAware,
    ClassicPartitioner,
    ClusterView,
    LegacyPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    UniformStickyPartitioner,
    create_partitioner,
    murmur2,
    partition_for_key,
)
from odradek.partitioners.legacy import DEFAULT_REFRESH_MS

create = partial(create_partitioner, monotonic=lambda: 0.0)


class Topic:
    """One topic with `count` partitions, of which `available` have a leader."""

    def __init__(self, count: int, available: Sequence[int] | None = None) -> None:
        self.count = count
        self.available = range(count) if available is None else available

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        return range(self.count)

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        return self.available


class EvenOrOdd:
    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        return len(value or b"") % 2


@pytest.mark.parametrize("name", ["classic", "sticky", "adaptive"])
def test_a_key_goes_to_its_partition_in_every_generation(name: str) -> None:
    """M2."""
    partitioner = create(name, entropy=Random(1))
    chosen = [partitioner.partition("t", b"key", b"", Topic(7, [1])) for _ in range(5)]
    assert chosen == [partition_for_key(b"key", 7)] * 5


@pytest.mark.parametrize("name", ["round_robin", "uniform_sticky"])
def test_two_classes_of_kafka_ignore_keys(name: str) -> None:
    """M2."""
    available = [number for number in range(7) if number != partition_for_key(b"key", 7)]
    partitioner = create(name, entropy=Random(1))
    chosen = [partitioner.partition("t", b"key", b"", Topic(7, available)) for _ in range(20)]
    assert set(chosen) <= set(available)


def test_an_empty_key_is_a_key() -> None:
    assert ClassicPartitioner(entropy=Random(1)).partition("t", b"", None, Topic(7)) == partition_for_key(b"", 7)


def test_classic_goes_round_the_available_partitions_from_a_random_start() -> None:
    """M2."""
    starts = set()
    for seed in range(20):
        partitioner = ClassicPartitioner(entropy=Random(seed))
        chosen = [partitioner.partition("t", None, None, Topic(5, [1, 2, 4])) for _ in range(6)]
        start = [1, 2, 4].index(chosen[0])
        starts.add(start)
        assert chosen == [[1, 2, 4][(start + step) % 3] for step in range(6)]
    assert starts == {0, 1, 2}


def test_classic_counts_each_topic_alone() -> None:
    partitioner = ClassicPartitioner(entropy=Random(1))
    first = partitioner.partition("a", None, None, Topic(5))
    partitioner.partition("b", None, None, Topic(5))
    assert partitioner.partition("a", None, None, Topic(5)) == (first + 1) % 5


def test_classic_goes_round_all_partitions_if_none_is_available() -> None:
    """M2."""
    partitioner = ClassicPartitioner(entropy=Random(1))
    assert sorted(partitioner.partition("t", None, None, Topic(3, [])) for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_round_robin_starts_at_the_first_partition() -> None:
    """M2."""
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", b"k", None, Topic(3)) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_sticky_stays_until_a_new_batch_and_then_moves_to_another_partition() -> None:
    """M2."""
    partitioner = StickyPartitioner(entropy=Random(1))
    topic = Topic(3)
    for _ in range(50):
        current = partitioner.partition("t", None, None, topic)
        assert [partitioner.partition("t", None, None, topic) for _ in range(9)] == [current] * 9
        partitioner.on_new_batch("t", topic, current)
        assert partitioner.partition("t", None, None, topic) != current


def test_two_racing_batches_move_sticky_once() -> None:
    """M2."""
    partitioner = StickyPartitioner(entropy=Random(1))
    first = partitioner.partition("t", None, None, Topic(9))
    partitioner.on_new_batch("t", Topic(9), first)
    second = partitioner.partition("t", None, None, Topic(9))
    partitioner.on_new_batch("t", Topic(9), first)
    assert partitioner.partition("t", None, None, Topic(9)) == second


def test_sticky_takes_the_only_available_partition_again() -> None:
    """M2."""
    partitioner = StickyPartitioner(entropy=Random(1))
    for _ in range(3):
        assert partitioner.partition("t", None, None, Topic(5, [3])) == 3
        partitioner.on_new_batch("t", Topic(5, [3]), 3)


def test_sticky_takes_any_partition_if_none_is_available() -> None:
    """M2."""
    chosen = {UniformStickyPartitioner(entropy=Random(s)).partition("t", None, None, Topic(3, [])) for s in range(50)}
    assert chosen == {0, 1, 2}


def test_adaptive_moves_after_batch_size_bytes_if_a_batch_is_ready() -> None:
    """M2."""
    partitioner = AdaptivePartitioner(entropy=Random(3), batch_size=100)
    topic = Topic(1000)
    first = partitioner.partition("t", None, None, topic)
    partitioner.on_appended("t", first, 99, topic, batch_ready=True)
    assert partitioner.partition("t", None, None, topic) == first
    partitioner.on_appended("t", first, 1, topic, batch_ready=True)
    assert partitioner.partition("t", None, None, topic) != first


def test_adaptive_waits_for_a_ready_batch_until_twice_batch_size() -> None:
    """M2."""
    partitioner = AdaptivePartitioner(entropy=Random(3), batch_size=100)
    topic = Topic(1000)
    first = partitioner.partition("t", None, None, topic)
    partitioner.on_appended("t", first, 199, topic, batch_ready=False)
    assert partitioner.partition("t", None, None, topic) == first
    partitioner.on_appended("t", first, 1, topic, batch_ready=False)
    assert partitioner.partition("t", None, None, topic) != first


def test_adaptive_does_not_count_bytes_of_a_partition_that_it_left() -> None:
    partitioner = AdaptivePartitioner(entropy=Random(3), batch_size=100)
    topic = Topic(1000)
    first = partitioner.partition("t", None, None, topic)
    partitioner.on_appended("t", first, 100, topic, batch_ready=True)
    second = partitioner.partition("t", None, None, topic)
    partitioner.on_appended("t", first, 500, topic, batch_ready=True)
    assert partitioner.partition("t", None, None, topic) == second


class InTurn(Random):
    """Every number of a range in its turn."""

    turn = -1

    def randrange(self, stop: int) -> int:  # type: ignore[override]
        self.turn += 1
        return self.turn % stop


def choices(partitioner: AdaptivePartitioner, topic: Topic, count: int) -> Counter[int]:
    chosen: Counter[int] = Counter()
    for _ in range(count):
        partition = partitioner.partition("t", None, None, topic)
        chosen[partition] += 1
        partitioner.on_appended("t", partition, 1, topic, batch_ready=True)
    return chosen


def test_adaptive_weighs_queues_of_0_3_1_as_4_1_3() -> None:
    """M2."""
    partitioner = AdaptivePartitioner(entropy=InTurn(), batch_size=1)
    partitioner.update_load("t", {0: 0, 1: 3, 2: 1}, partition_count=3)
    assert choices(partitioner, Topic(3), 16) == {0: 8, 1: 2, 2: 6}


def test_adaptive_skips_a_partition_whose_broker_is_not_ready_even_if_queues_are_equal() -> None:
    """M2."""
    partitioner = AdaptivePartitioner(entropy=InTurn(), batch_size=1)
    partitioner.update_load("t", {0: 2, 2: 2}, partition_count=3)
    assert choices(partitioner, Topic(3), 16) == {0: 8, 2: 8}


def test_adaptive_chooses_evenly_if_all_queues_are_equal() -> None:
    """M2."""
    partitioner = AdaptivePartitioner(entropy=Random(5), batch_size=1)
    partitioner.update_load("t", {0: 9, 1: 0, 2: 9}, partition_count=3)
    partitioner.update_load("t", {0: 2, 1: 2, 2: 2}, partition_count=3)
    chosen = choices(partitioner, Topic(3), 3000)
    assert all(900 < chosen[number] < 1100 for number in range(3))


def test_adaptive_without_adapting_chooses_evenly() -> None:
    partitioner = AdaptivePartitioner(entropy=Random(5), batch_size=1, adaptive=False)
    partitioner.update_load("t", {0: 9, 1: 0, 2: 9}, partition_count=3)
    assert choices(partitioner, Topic(3), 300)[0] > 50


def test_adaptive_avoids_partitions_without_a_leader_and_can_ignore_keys() -> None:
    partitioner = create("adaptive", entropy=Random(5), batch_size=1, ignore_keys=True)
    assert {partitioner.partition("t", bytes([n]), None, Topic(4, [2])) for n in range(30)} == {2}


def test_a_batch_size_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        AdaptivePartitioner(entropy=Random(), batch_size=0)


def test_names_and_objects_make_partitioners() -> None:
    """M2."""
    own = EvenOrOdd()
    assert create(own, entropy=Random()) is own
    assert own.partition("t", None, b"abc", Topic(2)) == 1
    for name in PARTITIONER_NAMES:
        assert create(name, entropy=Random(1)).partition("t", None, b"", Topic(2)) in {0, 1}
    assert isinstance(create("sticky", entropy=Random()), BatchAware)
    assert not isinstance(own, BatchAware)


def test_a_partitioner_comes_by_import_path() -> None:
    """M2."""
    for path in ("odradek.partitioners.counting:RoundRobinPartitioner", "odradek.partitioners.RoundRobinPartitioner"):
        assert isinstance(create(path, entropy=Random()), RoundRobinPartitioner)


@pytest.mark.parametrize(
    ("kafkas", "made"),
    [
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", StickyPartitioner),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", RoundRobinPartitioner),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", UniformStickyPartitioner),
        ("kafka.producer.DefaultPartitioner", LegacyPartitioner),
    ],
)
def test_a_partitioner_comes_by_kafkas_class_name(kafkas: str, made: type) -> None:
    """M2."""
    assert type(create(kafkas, entropy=Random())) is made


@pytest.mark.parametrize("name", ["fair", "no.such.module.Partitioner", "odradek.partitioners.Nobody", ""])
def test_an_unknown_name_is_refused_and_the_names_are_listed(name: str) -> None:
    with pytest.raises(ConfigurationError, match="classic, sticky, adaptive, round_robin, uniform_sticky, legacy"):
        create(name, entropy=Random())


@pytest.mark.parametrize("given", [EvenOrOdd, 5, None])
def test_a_class_and_other_objects_are_no_partitioners(given: object) -> None:
    with pytest.raises(ConfigurationError, match="not an object with a method partition"):
        create(given, entropy=Random())  # type: ignore[arg-type]


def test_a_class_by_import_path_that_needs_arguments_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be created without arguments"):
        create("odradek.partitioners:StickyPartitioner", entropy=Random())


def test_a_class_that_is_no_partitioner_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not an object with a method partition"):
        create("collections:OrderedDict", entropy=Random())


# ---- murmur2 ---------------------------------------------------------------------------------------------------------

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_a_hash_is_the_java_clients(key: bytes) -> None:
    """M2."""
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@hypothesis.given(st.binary(max_size=300))
def test_a_hash_is_another_clients(key: bytes) -> None:
    """M2."""
    assert murmur2(key) == aiokafka_murmur2(key)


@hypothesis.given(st.binary(max_size=300), st.integers(1, 1000))
def test_a_key_stays_where_the_java_client_puts_it(key: bytes, partition_count: int) -> None:
    """M2."""
    expected = (aiokafka_murmur2(key) & 0x7FFFFFFF) % partition_count
    assert partition_for_key(key, partition_count) == expected
    assert partition_for_key(key, partition_count) == expected


# ---- Legacy ----------------------------------------------------------------------------------------------------------


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
