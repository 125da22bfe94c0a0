"""Draws timelines as SVG: swim-lanes of members, and red lanes of partitions without an owner."""

import textwrap
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from odradek.lab.pictures.charts import LanePanel, LaneRow, Lanes
from odradek.lab.pictures.lanes import Axis, axis_of
from odradek.lab.pictures.svg import COLORS, DARK, GAP, Canvas, shortened, text_width, wrapped

_LANE: Final = 15.0
_LEAST: Final = 1.5
"""The least drawn length, so that a gap of 1 ms is visible."""
_SIZE: Final = 9.0
"""The size of the letters of a lane's label."""
_MOST_TEXTS: Final = 12
"""Limit of the rebalances that are described below a timeline."""
_TICKS_MS: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 10**12)


class _Panel:
    """A timeline's panel: its place in the picture, and its time axis."""

    def __init__(self, canvas: Canvas, panel: LanePanel, axis: Axis, left: float) -> None:
        self.canvas = canvas
        self.panel = panel
        self.axis = axis
        self.left = left
        self.right = canvas.width - 12

    def x(self, at_ms: float) -> float:
        return self.left + (self.right - self.left) * self.axis.share(at_ms)

    def ends(self, from_ms: int, to_ms: int) -> tuple[float, float]:
        """Return the ends of a span; one until the timeline's end extends to the end of the axis."""
        left = self.x(from_ms)
        right = self.right if to_ms == self.panel.timeline.end_ms else self.x(to_ms)
        return left, max(right, left + _LEAST)


def draw_lanes(canvas: Canvas, chart: Lanes, top: float) -> float:
    """Draw timelines below each other, and return the y below them."""
    start_ms = min(panel.timeline.start_ms for panel in chart.panels)
    end_ms = max(panel.timeline.end_ms for panel in chart.panels)
    whole = Axis(times_ms=(start_ms, end_ms), places=(0.0, 1.0), breaks=())
    left = 16 + max(text_width(shortened(row.name)) for panel in chart.panels for row in panel.rows)
    for panel in chart.panels:
        if len(chart.panels) > 1:
            top = canvas.lines(left, top, [panel.title]) + 3
        axis = axis_of(panel.timeline) if panel.timeline.is_wall_time else whole
        top = _draw_panel(_Panel(canvas, panel, axis, left), top)
    if not chart.panels[0].timeline.is_wall_time:
        is_play = chart.panels[0].timeline.now_ms is not None
        text = "seconds; the numbers are those of clicks" if is_play else "seconds since the change"
        return canvas.lines(left, top - 4, wrapped(text, canvas.width - left))
    return top


def _height(row: LaneRow) -> float:
    return 8 + max(_LANE * len(row.lanes), 24.0 if row.steps else 14.0)


def _draw_panel(shown: _Panel, top: float) -> float:
    canvas, timeline = shown.canvas, shown.panel.timeline
    if len(timeline.marks) > 1:
        top += 14  # the numbers of the rebalances
    bottom, numbered = top + sum(map(_height, shown.panel.rows)), -1.0
    for number, mark in enumerate(timeline.marks, 1):
        left, right = shown.x(mark.from_ms), shown.x(mark.to_ms)
        canvas.box(left, top, max(right - left, _LEAST), bottom - top, "currentColor", opacity=0.1)
        if len(timeline.marks) > 1 and number <= _MOST_TEXTS and left - numbered > 20:
            canvas.text(left, top - 7, str(number), size=10)
            numbered = left
    y = top
    for row in shown.panel.rows:
        height = _height(row)
        name = shortened(row.name)
        canvas.text(shown.left - 6, y + height / 2, name, anchor="end", fill=GAP if row.is_gap else "currentColor")
        _draw_row(shown, row, y, height)
        y += height
        canvas.line((shown.left, y), (shown.right, y), look='opacity="0.2"')
    for from_ms, to_ms in shown.axis.breaks:
        left, right = shown.x(from_ms), shown.x(to_ms)
        middle = (left + right) / 2
        canvas.line((middle, top), (middle, bottom), width=4, look='class="paper"')
        canvas.line((middle, top), (middle, bottom), look='stroke-dasharray="1 2"')
        if right - left > 120:  # the text between the numbers of two rebalances
            canvas.text(middle, top - 7, f"{_duration(to_ms - from_ms)} quiet", size=9, anchor="middle")
    canvas.line((shown.left, top), (shown.left, bottom), (shown.right, bottom))
    if timeline.now_ms is not None:
        now = shown.x(timeline.now_ms)
        canvas.line((now, top - 4), (now, bottom + 4), width=2)
    return _time_ticks(shown, bottom)


def _draw_row(shown: _Panel, row: LaneRow, top: float, height: float) -> None:
    """Draw a box for each span.

    A label that does not fit into its box is beside it, if the next box of its lane leaves room: to the right, or else
    to the left. Only a lane that has its label elsewhere may have a box without one.
    """
    canvas = shown.canvas
    beside = GAP if row.is_gap else "currentColor"

    def box(left: float, right: float, y: float, part: float, kind: int) -> str:
        color = GAP if row.is_gap else COLORS[kind % 7]
        canvas.box(left, y, right - left, part, color)
        return "#fff" if color in DARK else "#000"

    for number, lane in enumerate(row.lanes):
        y, needed, is_named = top + 4 + _LANE * number, text_width(lane.label, _SIZE) + 5, False
        middle = y + _LANE / 2 - 0.5
        places = [(0.0, shown.left), *(shown.ends(*span) for span in lane.spans), (shown.right, shown.right + 9e9)]
        for (_, before), (left, right), (after, _) in zip(places, places[1:], places[2:], strict=False):
            ink = box(left, right, y, _LANE - 1.5, lane.kind)
            fits = (right - left > needed, after - right > needed, left - before > needed)
            if fits[0] or fits[1] or not (fits[2] or is_named):
                x, fill = (left, ink) if fits[0] else (right, beside)
                canvas.text(x + 3, middle, lane.label, size=_SIZE, fill=fill)
            elif fits[2]:
                canvas.text(left - 3, middle, lane.label, size=_SIZE, fill=beside, anchor="end")
            is_named = is_named or any(fits)
    highest = max((count for _, count in row.steps), default=0)
    for (from_ms, count), (to_ms, _) in pairwise(row.steps):
        if count:
            part = (height - 6) * count / highest
            left, right = shown.ends(from_ms, to_ms)
            ink = box(left, right, top + height - part, part, 0)
            if right - left > text_width(f"{count:,}", _SIZE) + 4 and part > _SIZE:
                canvas.text(left + 3, top + height - part / 2, f"{count:,}", size=_SIZE, fill=ink)


def _time_ticks(shown: _Panel, bottom: float) -> float:
    """Write the times below a timeline, and on a clock's axis the rebalances, and return the y below them."""
    canvas, timeline = shown.canvas, shown.panel.timeline
    if not timeline.is_wall_time:
        first, last = shown.axis.times_ms[0], shown.axis.times_ms[-1]
        most = min(12, (shown.right - shown.left) // 25)
        step_ms = next(step for step in _TICKS_MS if last - first <= most * step)
        for at_ms in range(0, int(last) + 1, step_ms):
            canvas.line((shown.x(at_ms), bottom), (shown.x(at_ms), bottom + 4))
            canvas.text(shown.x(at_ms), bottom + 13, f"{at_ms / 1000:g}", anchor="middle")
        return bottom + 28
    free = 0.0
    for at_ms in [timeline.start_ms, *(mark.from_ms for mark in timeline.marks), timeline.end_ms]:
        text = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.") + f"{at_ms % 1000:03}"
        x, width = shown.x(at_ms), text_width(text, 10)
        left = min(max(x - width / 2, shown.left), shown.right + 8 - width)
        if left > free:
            canvas.line((x, bottom), (x, bottom + 4))
            canvas.text(left, bottom + 12, text, size=10)
            free = left + width + 8
    day = datetime.fromtimestamp(timeline.start_ms / 1000, UTC).strftime("%Y-%m-%d")
    lines = [f"UTC, from {day} on; {timeline.unowned_partition_ms / 1000:,.3f} partition-seconds without an owner"]
    room = int((shown.right - shown.left) / (0.6 * 10))
    lines += [
        textwrap.shorten(f"{number}  {mark.text}; {_duration(mark.to_ms - mark.from_ms)}", room, placeholder=" …")
        for number, mark in enumerate(timeline.marks[:_MOST_TEXTS], 1)
    ]
    if len(timeline.marks) > _MOST_TEXTS:
        lines.append(f"and {len(timeline.marks) - _MOST_TEXTS:,} rebalances more")
    return canvas.lines(shown.left, bottom + 22, lines, size=10) + 6


def _duration(length_ms: int) -> str:
    """Return a duration as text, in the largest unit that is not longer, with three digits."""
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if length_ms >= unit_ms:
            return f"{length_ms / unit_ms:.3g} {unit}"
    return f"{length_ms} ms"
