"""The chart of a timeline: its rows, and its time axis, which shortens quiet times between rebalances."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from odradek.lab.pictures.charts import Lane, LanePanel, LaneRow
from odradek.lab.timeline import Span, Timeline
from odradek.model import TopicPartition

MOST_LANES: Final = 100
"""Limit of the lanes in a picture; with more, rows show partition counts."""
MOST_MEMBERS: Final = 30
_LONG_QUIET: Final = 3
"""A quiet time longer than this many times the longest rebalance or gap is shortened to that one's length."""


class Axis(Struct, frozen=True, kw_only=True):
    """A time axis: times and their positions in the picture; between two neighbours it is linear."""

    times_ms: tuple[float, ...]
    places: tuple[float, ...]
    breaks: tuple[tuple[int, int], ...]
    """The shortened times, as (from, to) in ms."""

    def share(self, at_ms: float) -> float:
        """Return the position of a time on the axis, from 0 to 1."""
        index = min(max(bisect_right(self.times_ms, at_ms), 1), len(self.times_ms) - 1)
        from_ms, to_ms = self.times_ms[index - 1 : index + 1]
        from_place, to_place = self.places[index - 1 : index + 1]
        part = min(max((at_ms - from_ms) / (to_ms - from_ms), 0.0), 1.0)
        return (from_place + part * (to_place - from_place)) / self.places[-1]


def axis_of(timeline: Timeline) -> Axis:
    """Return the axis of a timeline, with long quiet times shortened."""
    busy = sorted(
        [(mark.from_ms, mark.to_ms) for mark in timeline.marks] + [(g.from_ms, g.to_ms) for g in timeline.gaps]
    )
    longest = max([to_ms - from_ms for from_ms, to_ms in busy] + [1])
    edges: list[tuple[int, int]] = []
    for from_ms, to_ms in [(timeline.start_ms, timeline.start_ms), *busy, (timeline.end_ms, timeline.end_ms)]:
        if edges and from_ms <= edges[-1][1]:
            edges[-1] = (edges[-1][0], max(edges[-1][1], to_ms))
        else:
            edges.append((from_ms, to_ms))
    times, places, breaks = [float(edges[0][0])], [0.0], []
    for (_, before_ms), (from_ms, to_ms) in pairwise([(0, edges[0][0]), *edges]):
        quiet = from_ms - before_ms
        shown = float(quiet)
        if quiet > _LONG_QUIET * longest:
            shown = float(longest)
            breaks.append((before_ms, from_ms))
        for at_ms, length in ((from_ms, shown), (to_ms, float(to_ms - from_ms))):
            if at_ms > times[-1]:
                times.append(float(at_ms))
                places.append(places[-1] + length)
    return Axis(times_ms=tuple(times), places=tuple(places), breaks=tuple(breaks))


def lane_panel(timeline: Timeline, panels: int) -> LanePanel:
    """Return a timeline's panel in a picture of `panels`: rows of lanes, or of counts with more than `MOST_LANES`."""
    by_member: dict[str | None, list[Span]] = {}
    for span in timeline.spans:
        by_member.setdefault(span.member, []).append(span)
    partitions = sorted({span.partition for span in timeline.spans})
    kinds = {partition: number for number, partition in enumerate(partitions)}
    several = len({partition.topic for partition in partitions}) > 1
    shown: list[str | None] = [*timeline.members[:MOST_MEMBERS], None]
    lanes = sum(len({span.partition for span in by_member.get(member, ())}) for member in shown)
    rows = []
    for member in shown:
        spans = by_member.get(member, [])
        name = "without an owner" if member is None else member
        if lanes * panels <= MOST_LANES:
            made = LaneRow(name=name, lanes=_lanes(spans, kinds, several=several), is_gap=member is None)
        else:
            made = LaneRow(name=name, steps=steps_of(spans), is_gap=member is None)
        rows.append(made)
    return LanePanel(title=timeline.title, timeline=timeline, rows=tuple(rows))


def lanes_notice(timeline: Timeline) -> str:
    """Return what the picture of a timeline leaves out, in sentences; empty if nothing."""
    notices = []
    if (members := len(timeline.members)) > MOST_MEMBERS:
        notices.append(
            f"The first {MOST_MEMBERS} of {members:,} members; the last row has the partitions of all of them."
        )
    if timeline.left_out:
        notices.append(f"The journal names no owners of {timeline.left_out:,} more partitions.")
    return " ".join(notices)


def _lanes(spans: Sequence[Span], kinds: dict[TopicPartition, int], *, several: bool) -> tuple[Lane, ...]:
    by_partition: dict[TopicPartition, list[tuple[int, int]]] = {}
    for span in spans:
        by_partition.setdefault(span.partition, []).append((span.from_ms, span.to_ms))
    return tuple(
        Lane(
            label=f"{partition.topic}-{partition.partition}" if several else str(partition.partition),
            kind=kinds[partition],
            spans=tuple(times),
        )
        for partition, times in sorted(by_partition.items())
    )


def steps_of(spans: Sequence[Span]) -> tuple[tuple[int, int], ...]:
    """Return (time, number of spans from then on) for each time at which the number may change."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.from_ms] = changes.get(span.from_ms, 0) + 1
        changes[span.to_ms] = changes.get(span.to_ms, 0) - 1
    count, steps = 0, []
    for at_ms, change in sorted(changes.items()):
        count += change
        steps.append((at_ms, count))
    return tuple(steps)
