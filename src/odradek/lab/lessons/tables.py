"""Tables of the lessons: what a partitioner or an assignor does call by call, and Kafka's names of today."""

from collections.abc import Sequence
from random import Random
from typing import Final

from msgspec import Struct

from odradek.lab.notation import case_of_texts, partitions_text
from odradek.lab.runs import run_strategy
from odradek.partitioners import LoadAware, create_partitioner
from odradek.partitioners.sticky import UniformStickyPartitioner

_DRAWS: Final = 8_000
_BATCH: Final = 100
"""Bytes of a batch."""


class Table(Struct, frozen=True, kw_only=True):
    """A table of a lesson."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Partitions:
    """A topic's partitions, as partitioners see them; those in `leaderless` have no leader."""

    def __init__(self, count: int, leaderless: Sequence[int] = ()) -> None:
        self._numbers = range(count)
        self._available = [number for number in self._numbers if number not in leaderless]

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        return self._numbers

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        return self._available


def sticky_switch() -> Table:
    """Return what each call does to the sticky partition."""
    partitioner = UniformStickyPartitioner(entropy=Random(2))
    rows: list[tuple[str, str, str]] = []
    all_lead = Partitions(3)

    def place(call: str, cluster: Partitions, why: str) -> int:
        number = partitioner.partition("t", None, None, cluster)
        rows.append((call, str(number), why))
        return number

    first = place("partition(t)", all_lead, "no partition yet: a random one")
    place("partition(t)", all_lead, "the batch is not full: the same one")
    partitioner.on_new_batch("t", all_lead, first)
    second = place(f"on_new_batch(t, previous={first})", all_lead, "the batch is full: another random one")
    partitioner.on_new_batch("t", all_lead, first)
    place(f"on_new_batch(t, previous={first}), from a second thread", all_lead, f"{first} is over already: no change")
    one_leads = Partitions(3, [number for number in range(3) if number != first])
    partitioner.on_new_batch("t", one_leads, second)
    place(f"on_new_batch(t, previous={second})", one_leads, f"only {first} has a leader: that one")
    none_leads = Partitions(3, range(3))
    partitioner.on_new_batch("t", none_leads, first)
    place(f"on_new_batch(t, previous={first})", none_leads, "none has a leader: any of all")
    return Table(title="One topic of three partitions", headings=("Call", "Partition", "Why"), rows=tuple(rows))


def adaptive_weights() -> Table:
    """Return the weights of queues of 0, 3 and 1 batches, of equal queues, and with a slow broker left out."""
    cases = (
        ("queues 0, 3, 1", {0: 0, 1: 3, 2: 1}),
        ("queues 2, 2, 2: equal, so uniform", {0: 2, 1: 2, 2: 2}),
        ("queues 0, 3, 1, partition 1 is left out by partitioner.availability.timeout.ms", {0: 0, 2: 1}),
    )
    rows = [row for title, queues in cases for row in _adaptive_rows(title, queues)]
    headings = ("Case", "Partition", "Queue", "Weight", f"Share of {_DRAWS:,} batches")
    return Table(title="Weight = longest queue + 1 - own queue", headings=headings, rows=tuple(rows))


def _adaptive_rows(title: str, queues: dict[int, int]) -> list[tuple[str, ...]]:
    cluster, count = Partitions(3), [0, 0, 0]
    partitioner = create_partitioner("adaptive", entropy=Random(1), monotonic=lambda: 0.0, batch_size=1)
    assert isinstance(partitioner, LoadAware)
    partitioner.update_load("t", queues, partition_count=3)
    for _ in range(_DRAWS):
        number = partitioner.partition("t", None, b"", cluster)
        count[number] += 1
        partitioner.on_appended("t", number, 1, cluster, batch_ready=True)
    most = max(queues.values())
    is_even = len(queues) == 3 and len(set(queues.values())) == 1
    return [
        (
            title if number == 0 else "",
            str(number),
            str(queues[number]) if number in queues else "–",
            ("1" if is_even else str(most + 1 - queues[number])) if number in queues else "0",
            f"{count[number] / _DRAWS:.0%}",
        )
        for number in range(3)
    ]


def adaptive_bytes() -> Table:
    """Return when the sticky partition changes, with a `batch.size` of 100 bytes."""
    rows: list[tuple[str, ...]] = []
    for appended, is_ready, why in (
        (60, False, "fewer than batch.size bytes: stay"),
        (60, False, "batch.size bytes, but the batch is not ready to send: stay"),
        (60, True, "a batch is ready: the next partition is drawn"),
        (120, False, "batch.size bytes, but the batch is not ready to send: stay"),
        (90, False, "twice batch.size bytes: the next partition is drawn in any case"),
    ):
        if not rows or "drawn" in rows[-1][3]:
            total = 0
            partitioner = create_partitioner("adaptive", entropy=Random(3), monotonic=lambda: 0.0, batch_size=_BATCH)
            partitioner.partition("t", None, b"", Partitions(1_000))
        assert isinstance(partitioner, LoadAware)
        before = partitioner.partition("t", None, b"", Partitions(1_000))
        total += appended
        partitioner.on_appended("t", before, appended, Partitions(1_000), batch_ready=is_ready)
        has_changed = partitioner.partition("t", None, b"", Partitions(1_000)) != before
        assert has_changed == ("drawn" in why), "the sentence is wrong"
        rows.append((str(appended), str(total), "yes" if is_ready else "no", why))
    headings = ("Bytes appended", "Bytes since the last change", "Batch ready", "Result")
    return Table(title="batch.size = 100 bytes", headings=headings, rows=tuple(rows))


def legacy_time() -> Table:
    """Return the partition of records without a key over time."""
    now = [0.0]
    partitioner = create_partitioner("legacy", entropy=Random(1), monotonic=lambda: now[0], batch_size=_BATCH)
    rows = []
    for at_s in (0, 1, 300, 599, 600, 601, 1199, 1200):
        now[0] = at_s
        rows.append((f"{at_s} s", str(partitioner.partition("t", None, b"", Partitions(12)))))
    return Table(title="Twelve partitions, records without a key", headings=("Time", "Partition"), rows=tuple(rows))


def counts() -> Table:
    """Return who has which partitions while four members join and three leave."""
    rows = []
    present: list[str] = []
    for number, is_joining in ((1, True), (2, True), (3, True), (4, True), (1, False), (2, False), (3, False)):
        name = f"C{number}"
        present = [*present, name] if is_joining else [each for each in present if each != name]
        run = run_strategy(case_of_texts(topics=["t=3"], members=present), "zookeeper-range")
        shares = [partitions_text(run.settled[each]).removeprefix("t:") or "none" if each in present else "–"
                  for each in ("C1", "C2", "C3", "C4")]  # fmt: skip
        rows.append((f"{name} {'joins' if is_joining else 'leaves'}", *shares))
    return Table(
        title="One topic of three partitions, zookeeper-range",
        headings=("Event", "C1", "C2", "C3", "C4"),
        rows=tuple(rows),
    )


def names_of_today() -> Table:
    """Return the messages of the coordinator's first design, and those that carry them today."""
    return Table(
        title="Messages and errors",
        headings=("As first published", "Classic protocol", "Consumer protocol (KIP-848)"),
        rows=(
            ("ConsumerMetadataRequest", "FindCoordinator", "FindCoordinator"),
            ("HeartbeatRequest", "Heartbeat", "ConsumerGroupHeartbeat"),
            ("JoinGroupRequest", "JoinGroup", "ConsumerGroupHeartbeat with epoch 0"),
            ("JoinGroupResponse: the partitions to own", "SyncGroup, computed by a member", "ConsumerGroupHeartbeat"),
            ("IllegalGeneration: a rebalance has begun", "REBALANCE_IN_PROGRESS", "a new assignment"),
            (
                "IllegalGeneration: too late",
                "ILLEGAL_GENERATION",
                "FENCED_MEMBER_EPOCH; of commits STALE_MEMBER_EPOCH",
            ),
            (
                "CoordinatorStartupNotComplete",
                "COORDINATOR_LOAD_IN_PROGRESS; a Heartbeat gets no error meanwhile",
                "COORDINATOR_LOAD_IN_PROGRESS",
            ),
            ("NotCoordinatorForGroup", "NOT_COORDINATOR", "NOT_COORDINATOR"),
            (
                "heartbeats: session.timeout.ms / heartbeat.frequency",
                "heartbeat.interval.ms of the member",
                "group.consumer.heartbeat.interval.ms of the broker, sent to the members",
            ),
        ),
    )


def states() -> Table:
    """Return the states of consumer and coordinator as first published, and how they show today."""
    return Table(
        title="States",
        headings=("Of", "State", "How it shows today"),
        rows=(
            ("consumer", "down", "no process, or closed"),
            ("consumer", "discovering", "sends FindCoordinator to any broker"),
            ("consumer", "member", "sends a heartbeat each heartbeat.interval.ms"),
            ("consumer", "rediscovering", "NOT_COORDINATOR or a lost connection: looks for it again, keeps reading"),
            ("consumer", "stopped", "REBALANCE_IN_PROGRESS: commits its offsets, joins again"),
            ("coordinator", "down", "the group's partition of __consumer_offsets has no leader"),
            ("coordinator", "catching up", "reads its groups from the log: COORDINATOR_LOAD_IN_PROGRESS"),
            ("coordinator", "ready", "Empty or Stable"),
            ("coordinator", "preparing a rebalance", "PreparingRebalance: waits for joins, up to a limit"),
            ("coordinator", "rebalancing", "CompletingRebalance: generation + 1, waits for the assignment"),
        ),
    )  # fmt: skip
