"""A timeline: the owners of partitions over time, and the gaps in which partitions had no owner."""

from collections.abc import Mapping

from msgspec import Struct

from odradek.lab.notebook import html
from odradek.model import TopicPartition


class Span(Struct, frozen=True, kw_only=True):
    """A partition's owner from one time (ms) to another; a `member` of None means no owner."""

    partition: TopicPartition
    member: str | None
    from_ms: int
    to_ms: int


class Mark(Struct, frozen=True, kw_only=True):
    """A rebalance, from its cause until all members had their assignment. Times are in ms."""

    from_ms: int
    to_ms: int
    text: str


class Timeline(Struct, frozen=True, kw_only=True):
    """The owners of partitions over time.

    A gap is a span without an owner. The time before a partition's first owner is no gap, nor is the time after its
    last one, except in a replay if the owner lost it in the last rebalance.
    """

    title: str
    start_ms: int
    end_ms: int
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...] = ()
    is_wall_time: bool = False
    """Whether times are ms since 1970; else ms since the change."""
    now_ms: int | None = None
    """The moment to mark, while a play goes on."""
    left_out: int = 0
    """The number of partitions that the rebalance journal does not name."""
    measured_ms: int | None = None
    """The time without an owner that was measured elsewhere, such as by the brokers."""

    @property
    def members(self) -> tuple[str, ...]:
        """The members in the order in which they first owned a partition."""
        owned = sorted((span.from_ms, span.member) for span in self.spans if span.member is not None)
        return tuple(dict.fromkeys(member for _, member in owned))

    @property
    def gaps(self) -> tuple[Span, ...]:
        """The spans without an owner, in the order of time."""
        return tuple(
            sorted(
                (span for span in self.spans if span.member is None), key=lambda each: (each.from_ms, each.partition)
            )
        )

    @property
    def unowned_partition_ms(self) -> int:
        """The time without an owner, summed over the partitions: what was measured, or else the gaps."""
        if self.measured_ms is not None:
            return self.measured_ms
        return sum(gap.to_ms - gap.from_ms for gap in self.gaps)

    def _repr_html_(self) -> str:
        return html(self)


class TimelineBuilder:
    """Builds spans from changes of owners. A change earlier than the partition's previous one gets that one's time."""

    def __init__(self) -> None:
        self._open: dict[TopicPartition, tuple[str | None, int]] = {}
        self._spans: list[Span] = []

    def owner(self, partition: TopicPartition) -> str | None:
        return self._open.get(partition, (None, 0))[0]

    def note(self, partition: TopicPartition, member: str | None, at_ms: int) -> None:
        """Record the owner of a partition from `at_ms` on. None begins a gap if the partition had an owner."""
        known = self._open.get(partition)
        if known is None:
            if member is not None:
                self._open[partition] = (member, at_ms)
            return
        before, since_ms = known
        if before == member:
            return
        at_ms = max(at_ms, since_ms)
        self._add(partition, before, since_ms, at_ms)
        self._open[partition] = (member, at_ms)

    def note_all(self, owners: Mapping[TopicPartition, str], at_ms: int) -> None:
        """Record the owners of all partitions from `at_ms` on; partitions missing in `owners` have none."""
        for partition in [*self._open, *owners]:
            self.note(partition, owners.get(partition), at_ms)

    def close(self, at_ms: int, *, gaps_since_ms: int | None = None) -> None:
        """End all spans at `at_ms`. Drop open gaps, except those that began at `gaps_since_ms` or later."""
        for partition, (member, since_ms) in self._open.items():
            if member is not None or (gaps_since_ms is not None and since_ms >= gaps_since_ms):
                self._add(partition, member, since_ms, max(at_ms, since_ms))
        self._open.clear()

    def spans(self) -> tuple[Span, ...]:
        """Return the ended spans, by partition and time."""
        return tuple(sorted(self._spans, key=lambda span: (span.partition, span.from_ms)))

    def _add(self, partition: TopicPartition, member: str | None, from_ms: int, to_ms: int) -> None:
        if to_ms > from_ms:
            self._spans.append(Span(partition=partition, member=member, from_ms=from_ms, to_ms=to_ms))
