"""The checker of histories: it finds each anomaly where there is one, and none where there is none."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.server import Server
from odradek.model import TopicPartition
from odradek.model.probes import ProbeCounts, collecting, perturb, perturbing, probe, transition
from odradek.simulation import coverage
from odradek.simulation.checks import bounds
from odradek.simulation.histories import History, Kind, anomalies, longest_pause, verdict
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.simulation.world import World

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def written(*values: bytes, producer: str = "a", acknowledged: bool = True) -> History:
    """`values` were sent in this order, and acknowledged at offsets 0, 1, 2, …"""
    history = History()
    for offset, value in enumerate(values):
        send = history.send(producer, T0, value, now=float(offset))
        if acknowledged:
            send.acknowledge(offset, now=offset + 0.5)
    return history


def log(*values: bytes) -> Sequence[tuple[int, bytes]]:
    return list(enumerate(values))


def kinds(history: History) -> list[Kind]:
    return [each.kind for each in anomalies(history)]


def test_a_history_in_which_all_is_well_has_no_anomaly():
    history = written(b"1", b"2", b"3")
    for offset, value in log(b"1", b"2", b"3"):
        history.poll("reader", T0, offset, value)
    history.audit(T0, log(b"1", b"2", b"3"))
    assert anomalies(history) == []
    assert verdict(history) == ""


def test_an_acknowledged_record_that_the_log_lacks_is_lost():
    history = written(b"1", b"2", b"3")
    history.audit(T0, log(b"1", b"2"))
    (found,) = anomalies(history)
    assert (found.kind, found.partition) == (Kind.LOST, T0)
    assert str(found) == "lost in t-0: b'3' of a, acknowledged at offset 2"


def test_a_record_without_an_outcome_may_be_there_or_not():
    history = written(b"1", b"2", acknowledged=False)
    history.audit(T0, log(b"2"))
    assert anomalies(history) == []


def test_a_record_that_a_consumer_had_and_the_log_lacks_has_vanished():
    history = written(b"1", b"2", acknowledged=False)
    history.poll("reader", T0, 1, b"2")
    history.audit(T0, log(b"1"))
    assert kinds(history) == [Kind.VANISHED]


def test_only_records_that_may_be_lost_may_be_missing_after_they_were_acknowledged_or_read():
    history = written(b"1", b"2", b"3")
    for offset, value in log(b"1", b"2", b"3"):
        history.poll("reader", T0, offset, value)
    history.audit(T0, log(b"1", b"4"))
    history.send("a", T0, b"4", now=4.0)
    history.may_be_lost = lambda send: send.sent_at >= 1.0
    assert anomalies(history) == []
    history.may_be_lost = lambda send: send.sent_at >= 2.0
    assert kinds(history) == [Kind.LOST, Kind.MISPLACED]


def test_a_record_that_may_be_lost_may_have_an_earlier_copy_at_another_offset():
    history = written(b"1", b"2")
    history.audit(T0, log(b"2", b"1"))
    history.careless.add("a")
    assert kinds(history) == [Kind.MISPLACED, Kind.MISPLACED]
    history.may_be_lost = lambda send: True
    assert kinds(history) == []


def test_a_record_that_is_there_twice_is_doubled_unless_its_producer_is_careless():
    history = written(b"1", b"2")
    history.audit(T0, log(b"1", b"2", b"1"))
    assert kinds(history) == [Kind.DOUBLED]
    history.careless.add("a")
    assert kinds(history) == []


def test_records_of_one_producer_in_another_order_are_reordered_unless_it_is_careless():
    history = written(b"1", b"2", b"3", acknowledged=False)
    history.audit(T0, log(b"1", b"3", b"2"))
    assert kinds(history) == [Kind.REORDERED]
    history.careless.add("a")
    assert kinds(history) == []


def test_two_producers_have_no_order_between_them():
    history = History()
    for value in (b"a1", b"b1", b"a2", b"b2"):
        history.send(value[:1].decode(), T0, value, now=0.0)
    history.audit(T0, log(b"b1", b"b2", b"a1", b"a2"))
    assert anomalies(history) == []


@pytest.mark.parametrize(
    "tell",
    [
        lambda history: history.poll("reader", T0, 0, b"2"),
        lambda history: history.sends[1].acknowledge(0, now=1.0),
        lambda history: history.audit(T0, [(0, b"1"), (1, b"2"), (1, b"3")]),
    ],
    ids=["a consumer's", "an acknowledged one", "the log's own"],
)
def test_two_values_at_one_offset_are_misplaced(tell: Callable[[History], None]):
    history = written(b"1", b"2", b"3", acknowledged=False)
    history.audit(T0, log(b"1", b"2", b"3"))
    tell(history)
    assert kinds(history) == [Kind.MISPLACED]


def test_two_consumers_that_saw_different_values_at_one_offset_cannot_both_agree_with_the_log():
    history = written(b"1", b"2", acknowledged=False)
    history.poll("one", T0, 0, b"1")
    history.poll("other", T0, 0, b"2")
    history.audit(T0, log(b"1"))
    assert kinds(history) == [Kind.MISPLACED]


def test_an_acknowledgement_without_an_offset_requires_only_the_record():
    history = written(b"1", acknowledged=False)
    history.sends[0].acknowledge(None, now=1.0)
    history.audit(T0, [(7, b"1")])
    assert anomalies(history) == []


@pytest.mark.parametrize("refused", [False, True])
def test_values_of_no_sender_or_of_a_refused_one_count_as_never_sent(refused: bool):
    history = written(b"1")
    if refused:
        history.send("a", T0, b"2", now=2.0).refuse()
    history.audit(T0, log(b"1", b"2"))
    assert kinds(history) == [Kind.NEVER_SENT]
    history.audit(T0, log(b"1"))
    assert kinds(history) == []
    history.poll("reader", T0, 1, b"2")
    assert kinds(history) == [Kind.NEVER_SENT]


def test_a_reading_that_goes_past_a_record_has_skipped_it_and_gaps_in_the_log_are_none():
    history = written(b"1", b"2", b"3", acknowledged=False)
    for offset, value in ((0, b"1"), (9, b"3")):
        history.poll("reader", T0, offset, value)
    history.audit(T0, [(0, b"1"), (4, b"2"), (9, b"3")])
    assert kinds(history) == [Kind.SKIPPED]
    history.audit(T0, [(0, b"1"), (9, b"3")])
    assert kinds(history) == []


def test_a_reading_that_goes_back_has_repeated_and_another_reading_starts_anywhere():
    history = written(b"1", b"2")
    for offset, value in ((1, b"2"), (0, b"1")):
        history.poll("reader", T0, offset, value)
    history.audit(T0, log(b"1", b"2"))
    assert kinds(history) == [Kind.REPEATED]
    history.polls.clear()
    history.poll("reader", T0, 1, b"2")
    history.poll("reader, again", T0, 0, b"1")
    assert kinds(history) == []


@pytest.mark.parametrize(("read", "is_all"), [((0, 1, 2), True), ((1, 2), False), ((0, 1), False), ((), False)])
def test_a_thorough_reading_has_every_record_and_another_one_may_begin_late_or_end_early(
    read: Sequence[int], is_all: bool
):
    values = b"1", b"2", b"3"
    history = written(*values)
    for offset in read:
        history.poll("reader", T0, offset, values[offset])
    history.audit(T0, log(*values))
    assert kinds(history) == []
    history.thorough.add("reader")
    assert kinds(history) == ([] if is_all else [Kind.UNSEEN])


def test_partitions_are_judged_one_by_one():
    history = written(b"1")
    history.send("a", T1, b"1", now=0.0).acknowledge(0, now=0.1)
    history.audit(T0, log(b"1"))
    history.audit(T1, [])
    assert [(each.kind, each.partition) for each in anomalies(history)] == [(Kind.LOST, T1)]
    assert (history.acknowledged(), history.acknowledged(T1)) == (2, 1)


def test_a_verdict_is_short_however_much_is_wrong():
    history = written(*(b"%d" % number for number in range(1000)))
    history.audit(T0, [])
    lines = verdict(history).splitlines()
    assert len(lines) == 6
    assert lines[-1] == "lost in t-0: and 995 more"


@pytest.mark.parametrize("fault", ["drop", "double", "swap", "replace"])
def test_one_fault_anywhere_in_a_long_history_is_found(fault: str, seed: int):
    chance = random.Random(f"{fault}/{seed}")
    values = [b"%d" % number for number in range(500)]
    history = written(*values, acknowledged=False)
    for send in history.sends:
        send.acknowledge(None, now=1.0)
    place = chance.randrange(len(values) - 1)
    if fault == "drop":
        del values[place]
    elif fault == "double":
        values.append(values[place])
    elif fault == "swap":
        values[place], values[place + 1] = values[place + 1], values[place]
    else:
        values[place] = b"foreign"
    history.audit(T0, log(*values))
    expected = {
        "drop": {Kind.LOST},
        "double": {Kind.DOUBLED},
        "swap": {Kind.REORDERED},
        "replace": {Kind.LOST, Kind.NEVER_SENT},
    }
    assert set(kinds(history)) == expected[fault]


def test_the_longest_pause_is_of_one_client_in_one_partition_and_in_the_given_time():
    history = History()
    for producer, partition, times in (
        ("a", T0, (0.0, 1.0, 4.0)),
        ("a", T1, (0.5, 3.0)),
        ("b", T0, (1.5, 2.0)),
        ("b", T1, (4.0,)),
    ):
        for time in times:
            send = history.send(producer, partition, f"{producer}{partition}{time}".encode(), now=time)
            send.acknowledge(None, now=time)
    history.send("a", T0, b"on its way", now=9.0)
    assert longest_pause(history, {"a"}) == (3.0, 1.0, T0)
    assert longest_pause(history, {"a"}, until=0.5) == (2.5, 0.5, T1)
    assert longest_pause(history, {"a"}, since=3.5) == (3.0, 1.0, T0)
    assert longest_pause(history, {"a"}, since=5.0) is None
    assert longest_pause(history, {"b"}) == (0.5, 1.5, T0)
    assert longest_pause(history, {"a", "b"}) == (2.5, 0.5, T1)


# ---- Bounds of memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "method", "what"), [
    (Server, "connection_closed", "connections"),
    (Purgatory, "release", "parked requests"),
])  # fmt: skip
def test_a_planted_leak_is_found(kind: type, method: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = getattr(kind, method)
    container = {"connection_closed": "_connections", "release": "_timers"}[method]

    def leak(owner: Any, each: Any) -> Any:
        kept = getattr(owner, container).get(each)
        result = release(owner, each)
        if kept is not None:
            getattr(owner, container)[object()] = kept
        return result

    monkeypatch.setattr(kind, method, leak)
    monkeypatch.setattr(bounds, "PATIENCE_S", 1.0)
    plan = SeedPlan(
        seed=1, workloads=("records",), faults=("reject",), count=4, virtual_s=10.0, config={"brokers": "3"}
    )
    findings = run_seed(plan).findings
    assert any(what in each for each in findings), findings


# ---- Probes ----------------------------------------------------------------------------------------------------------

SOURCE = Path(coverage.__file__).parents[1]


def test_a_probe_counts_only_while_its_collection_is_open():
    probe("test: a branch")
    with collecting() as outer:
        probe("test: a branch")
        with collecting() as inner:
            probe("test: a branch")
            transition("test", "A", "B")
    probe("test: a branch")
    assert outer.probes == inner.probes == {"test: a branch": 1}
    assert (outer.transitions, inner.transitions) == ({}, {"test: A -> B": 1})


def test_a_place_is_perturbed_only_in_a_seed_and_then_counted():
    with collecting() as counts:
        assert not perturb("test: a place")
        with perturbing(lambda name: name == "test: a place"):
            assert perturb("test: a place")
            assert not perturb("test: another place")
    assert counts.probes == {"test: a place": 1}


def test_every_probe_has_a_name_of_its_own_that_begins_with_its_room():
    sources = [path for path in SOURCE.rglob("*.py") if path.name not in {"probes.py", "coverage.py"}]
    calls = sum(len(re.findall(r"\b(?:probe|perturb)\(", path.read_text())) for path in sources)
    names = coverage.probes()
    assert len(names) == calls >= 40
    rooms = "log recovery, log, replication, controller, coordinator, groups, transactions, producer, consumer, wire, "
    rooms += "produce, fetch"
    assert {name.partition(": ")[0] for name in names} == set(rooms.split(", "))


def test_a_cluster_that_is_killed_makes_no_transition_that_the_tables_lack():
    async def scenario(world: World) -> None:
        await world.create_topic("t", 2)
        async with world.producer("writer", transactional_id="id") as producer:
            await producer.begin_transaction()
            await producer.send("t", b"1")
            await producer.commit_transaction()
        async with world.consumer("reader", "t", group_id="group") as consumer:
            assert len(await consumer.poll(10_000)) == 1
        await world.restart()

    with collecting() as counts:
        World(1).play(scenario)
    assert "transaction: PREPARE_COMMIT -> COMPLETE_COMMIT" in counts.transitions
    assert counts.transitions.keys() <= coverage.transitions()
    assert not set(coverage.unreached(counts)) & (counts.probes.keys() | counts.transitions.keys())


def test_without_any_count_everything_is_unreached():
    assert len(coverage.unreached(ProbeCounts())) == len(coverage.probes()) + len(coverage.transitions())
