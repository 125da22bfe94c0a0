"""A history of sends, acknowledgements and polls, and the check that no record was lost or doubled (SPEC 12).

A history has the producers' sends with their outcomes, the records that consumers polled, and finally an audit: each
partition's log, read from its beginning without faults. Its anomalies are those of Jepsen for Kafka-like logs:

    lost            acknowledged, and not in the log
    vanished        polled, and not in the log: it was readable before it was committed
    doubled         an idempotent producer's record is in the log twice
    reordered       an idempotent producer's records are in another order than they were sent in
    misplaced       the log has another offset than acknowledged, another value than polled, or one offset twice
    never sent      in the log or polled, though no producer sent it, or its send failed for good
    skipped         a consumer polled past a record that the log has
    unseen          a consumer that had to read everything never polled a record that the log has
    repeated        a consumer polled the same or a lower offset without a seek

```python
history = History()
send = history.send("a", T0, b"1", now=0.0); send.acknowledge(0, now=0.1)
history.poll("reader", T0, 0, b"1")
history.audit(T0, [(0, b"1")])
assert not anomalies(history)
```
Values are unique in a history, because they identify records. Times are seconds of any clock.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.model import TopicPartition

_MOST_TOLD: Final = 5
"""Limit of the anomalies of one kind and partition that `verdict` lists."""


class Kind(StrEnum):
    """The kinds of anomalies, which the module explains."""

    LOST = "lost"
    VANISHED = "vanished"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    MISPLACED = "misplaced"
    NEVER_SENT = "never sent"
    SKIPPED = "skipped"
    UNSEEN = "unseen"
    REPEATED = "repeated"


class Anomaly(NamedTuple):
    """One anomaly; `what` describes it."""

    kind: Kind
    partition: TopicPartition
    what: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.what}"


class Send(Struct, eq=False, kw_only=True):
    """One sent record. Until it is acknowledged or refused, the log may have it or not, or get it later."""

    producer: str
    partition: TopicPartition
    value: bytes
    sent_at: float
    acknowledged_at: float | None = None
    offset: int | None = None
    refused: bool = False

    def acknowledge(self, offset: int | None, *, now: float) -> None:
        """Record that the cluster has acknowledged the record, at `offset` if it is known."""
        self.acknowledged_at, self.offset = now, offset

    def refuse(self) -> None:
        """Record a final failure, such as a too large record or an aborted transaction, but not a time-out."""
        self.refused = True


class Polled(NamedTuple):
    """A record that a consumer polled."""

    offset: int
    value: bytes


class History:
    """The sends, polls and final logs of one test. Threads may share it: each event is recorded by one append."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.polls: dict[tuple[str, TopicPartition], list[Polled]] = defaultdict(list)
        self.logs: dict[TopicPartition, Sequence[Polled]] = {}
        self.careless: set[str] = set()
        """Producers without idempotence: their records may be duplicated, and in any order."""
        self.thorough: set[str] = set()
        """Readings that must have every record of every audited partition."""
        self.may_be_lost: Callable[[Send], bool] = lambda send: False
        """Whether the log may lack a record that was acknowledged or polled, as after an unclean election.

        It may then have an earlier copy, at another offset, that was not acknowledged.
        """

    def send(self, producer: str, partition: TopicPartition, value: bytes, *, now: float) -> Send:
        """Record that `producer` sends a record; the caller reports the outcome to the returned `Send`."""
        send = Send(producer=producer, partition=partition, value=value, sent_at=now)
        self.sends.append(send)
        return send

    def poll(self, reading: str, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record that a consumer polled a record.

        `reading` names one run of increasing offsets: after a seek or a rebalance, use a new name.
        """
        self.polls[reading, partition].append(Polled(offset, value))

    def audit(self, partition: TopicPartition, log: Sequence[tuple[int, bytes]]) -> None:
        """Record the final log of a partition: `(offset, value)` pairs in the order of offsets."""
        self.logs[partition] = [Polled(*each) for each in log]

    def acknowledged(self, partition: TopicPartition | None = None) -> int:
        """Return the number of acknowledged sends, to one partition or to all."""
        return sum(
            each.acknowledged_at is not None and partition in (None, each.partition) for each in tuple(self.sends)
        )


def anomalies(history: History) -> list[Anomaly]:
    found: list[Anomaly] = []
    for partition, log in history.logs.items():
        sends = [send for send in history.sends if send.partition == partition]
        readings: dict[str, list[Polled]] = {reading: [] for reading in sorted(history.thorough)}
        readings |= {reading: polls for (reading, of), polls in history.polls.items() if of == partition}
        case = _Case(partition, log, sends, readings, history)
        found += [Anomaly(kind, partition, what) for kind, what in case.findings()]
    return found


def verdict(history: History) -> str:
    """Return the first few anomalies of each kind and partition as lines, and how many more; empty if none."""
    told: Counter[tuple[Kind, TopicPartition]] = Counter()
    lines = []
    for anomaly in anomalies(history):
        told[anomaly.kind, anomaly.partition] += 1
        if told[anomaly.kind, anomaly.partition] <= _MOST_TOLD:
            lines.append(str(anomaly))
    lines += [
        f"{kind} in {partition}: and {count - _MOST_TOLD} more"
        for (kind, partition), count in told.items()
        if count > _MOST_TOLD
    ]
    return "\n".join(lines)


class _Case:
    """The log, sends and polls of one partition."""

    def __init__(
        self,
        partition: TopicPartition,
        log: Sequence[Polled],
        sends: Sequence[Send],
        readings: dict[str, list[Polled]],
        history: History,
    ) -> None:
        self._log = log
        self._sends = sends
        self._readings = readings
        self._careless, self._thorough = history.careless, history.thorough
        self._may_be_lost = history.may_be_lost
        self._by_value = {send.value: (number, send) for number, send in enumerate(sends)}
        self._at = {record.offset: record.value for record in log}
        self._offsets = sorted(self._at)
        self._places: dict[bytes, list[int]] = defaultdict(list)
        for record in log:
            self._places[record.value].append(record.offset)
        assert len(self._by_value) == len(sends), f"values are sent twice to {partition}"

    def findings(self) -> Iterator[tuple[Kind, str]]:
        yield from self._of_sends()
        yield from self._of_the_log()
        for reading, polls in self._readings.items():
            yield from self._of_reading(reading, polls)

    def _of_sends(self) -> Iterator[tuple[Kind, str]]:
        for send in self._sends:
            places = self._places.get(send.value, [])
            if send.acknowledged_at is None or self._may_be_lost(send):
                continue
            if not places:
                yield Kind.LOST, f"{send.value!r} of {send.producer}, acknowledged at offset {send.offset}"
            elif send.offset is not None and send.offset not in places:
                yield Kind.MISPLACED, f"{send.value!r} was acknowledged at offset {send.offset} and is at {places[0]}"

    def _of_the_log(self) -> Iterator[tuple[Kind, str]]:
        if len(self._at) != len(self._log):
            twice = [offset for offset, count in Counter(record.offset for record in self._log).items() if count > 1]
            yield Kind.MISPLACED, f"the log has several records at offsets {twice[:_MOST_TOLD]}"
        last: dict[str, tuple[int, bytes]] = {}
        for record in self._log:
            known = self._by_value.get(record.value)
            if known is None or known[1].refused:
                yield Kind.NEVER_SENT, self._not_sent(record, known)
                continue
            number, send = known
            if send.producer in self._careless:
                continue
            places = self._places[record.value]
            if record.offset != places[0]:
                yield Kind.DOUBLED, f"{record.value!r} of {send.producer} at offsets {places[0]} and {record.offset}"
                continue
            before = last.get(send.producer)
            if before is not None and before[0] > number:
                order = f"{record.value!r} of {send.producer} was sent before {before[1]!r} and is after it"
                yield Kind.REORDERED, f"{order}, at offset {record.offset}"
            last[send.producer] = number, record.value

    def _of_reading(self, reading: str, polls: Sequence[Polled]) -> Iterator[tuple[Kind, str]]:
        for polled in polls:
            here = self._at.get(polled.offset)
            known = self._by_value.get(polled.value)
            if known is None or known[1].refused:
                yield Kind.NEVER_SENT, f"{self._not_sent(polled, known)}, and {reading} read it"
            elif here != polled.value and self._may_be_lost(known[1]):
                continue
            elif here is not None and here != polled.value:
                yield (
                    Kind.MISPLACED,
                    f"{reading} read {polled.value!r} at offset {polled.offset}, where the log has {here!r}",
                )
            elif here is None:
                yield Kind.VANISHED, f"{polled.value!r}, which {reading} read at offset {polled.offset}"
        if reading in self._thorough and (unseen := self._at.keys() - {polled.offset for polled in polls}):
            yield Kind.UNSEEN, f"{reading} never read {len(unseen)} records, such as that of offset {min(unseen)}"
        for one, following in pairwise(polls):
            if following.offset <= one.offset:
                yield Kind.REPEATED, f"{reading} read offset {following.offset} after {one.offset}"
            elif (missed := self._first_after(one.offset)) < following.offset:
                yield Kind.SKIPPED, f"{reading} read offset {following.offset} after {one.offset}, without {missed}"

    def _first_after(self, offset: int) -> int:
        """Return the log's first offset after `offset`, or 2^63 if there is none."""
        place = bisect_right(self._offsets, offset)
        return self._offsets[place] if place < len(self._offsets) else 1 << 63

    def _not_sent(self, record: Polled, known: tuple[int, Send] | None) -> str:
        reason = "nobody sent it" if known is None else f"{known[1].producer} was told that it failed"
        return f"{record.value!r} at offset {record.offset}: {reason}"


class Pause(NamedTuple):
    """The time between two acknowledged writes to one partition, in seconds."""

    seconds: float
    began_at: float
    partition: TopicPartition


def longest_pause(
    history: History,
    producers: Collection[str],
    *,
    since: float = float("-inf"),
    until: float = float("inf"),
) -> Pause | None:
    """Return the longest pause between acknowledged writes to one partition, or None.

    `producers` are successive producers of one client, which is assumed to send all the time. A pause counts if it
    overlaps the time from `since` to `until`.
    """
    times: dict[TopicPartition, list[float]] = defaultdict(list)
    for send in tuple(history.sends):
        if send.acknowledged_at is not None and send.producer in producers:
            times[send.partition].append(send.acknowledged_at)
    return max(
        (
            Pause(after - before, before, partition)
            for partition, some in times.items()
            for before, after in pairwise(sorted(some))
            if after >= since and before <= until
        ),
        default=None,
    )
