"""Where the replicas of new topics go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.cluster_load import ClusterLoad
from tests.broker.controller.machine.partition_world import place


def load_of(*assignments) -> ClusterLoad:
    load = ClusterLoad()
    for assignment in assignments:
        load.add(assignment.values())
    return load


def test_a_topic_is_spread_over_all_brokers() -> None:
    """M1: no single broker holds the whole topic."""
    assert place({0: None, 1: None, 2: None}, ClusterLoad(), partitions=3, replication_factor=2) == {
        0: (0, 1),
        1: (1, 2),
        2: (2, 0),
    }


def test_small_topics_fill_brokers_evenly() -> None:
    load = ClusterLoad()
    leaders = [place({0: None, 1: None, 2: None}, load, partitions=1, replication_factor=1)[0][0] for _ in range(6)]
    assert leaders == [0, 1, 2, 0, 1, 2]


def test_a_new_broker_gets_the_odd_partitions_and_not_everything() -> None:
    load = load_of({partition: (partition % 2,) for partition in range(100)})
    assignment = place({0: None, 1: None, 2: None}, load, partitions=4, replication_factor=1)
    assert Counter(replicas[0] for replicas in assignment.values()) == {2: 2, 0: 1, 1: 1}


def test_a_dead_broker_s_partitions_would_go_to_many_others() -> None:
    assignment = place(dict.fromkeys(range(5)), ClusterLoad(), partitions=20, replication_factor=2)
    successors = Counter(replicas[1] for replicas in assignment.values() if replicas[0] == 0)
    assert successors == {1: 1, 2: 1, 3: 1, 4: 1}


def test_a_load_counted_in_and_out_is_none() -> None:
    load = ClusterLoad()
    assignment = place({0: None, 1: None}, load, partitions=3, replication_factor=2)
    copy = load.copy()
    copy.remove(assignment.values())
    assert not any(copy.leaders.values())
    assert not any(copy.replicas.values())
    assert sum(load.leaders.values()) == 3


@given(
    racks=st.dictionaries(st.integers(0, 50), st.sampled_from("abc"), min_size=1, max_size=9),
    racked=st.booleans(),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_leaders_and_replicas_are_balanced_and_racks_are_used(racks, racked, partitions, data) -> None:
    racks = racks if racked else dict.fromkeys(racks)
    factor = data.draw(st.integers(1, len(racks)))
    assignment = place(racks, ClusterLoad(), partitions=partitions, replication_factor=factor)
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
        if racked:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in assignment.values())
    counts = [leaders[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1
    if not racked:
        held = Counter(broker for replicas in assignment.values() for broker in replicas)
        counts = [held[broker] for broker in racks]
        assert max(counts) - min(counts) <= 2


@given(
    racks=st.dictionaries(st.integers(0, 7), st.sampled_from((None, "a", "b")), min_size=1),
    data=st.data(),
    partitions=st.integers(1, 12),
)
def test_brokers_that_are_away_lead_nothing_and_come_last(racks, data, partitions) -> None:
    away = data.draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(racks, ClusterLoad(), partitions=partitions, replication_factor=factor, away=away)
    live = len(racks) - len(away)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert away.isdisjoint(replicas[:live]), "a live broker would have been there"
        assert away.issuperset(replicas[live:])
