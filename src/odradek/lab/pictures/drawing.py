"""Draws charts as SVG. Equal charts give equal texts. Lengths are in pixels."""

from collections.abc import Callable, Sequence
from math import log10
from typing import Any, Final

from odradek.lab.pictures.charts import Bars, Blocks, Chart, Exchange, Lanes, Lines
from odradek.lab.pictures.lane_drawing import draw_lanes
from odradek.lab.pictures.svg import COLORS, DARK, WIDTH, Canvas, shortened, text_width, wrapped

_ROW: Final = 26.0
_LEAST_SIZE: Final = 8.0
"""The smallest letters in boxes; a picture becomes wider for them."""


def draw(chart: Chart, *, sheet: bool = True, width: float = WIDTH) -> str:
    """Return a chart as an `svg` element; without `sheet`, the page's style sheet has the rules of its classes.

    Lanes have any `width`, other charts that of a page.
    """
    draws: dict[type, Callable[[Canvas, Any, float], float]] = {
        Blocks: _blocks, Bars: _bars, Lines: _lines, Lanes: draw_lanes, Exchange: _exchange,
    }  # fmt: skip
    canvas = Canvas()
    canvas.width = width
    top = canvas.lines(8, 4, wrapped(chart.title, width, 15), size=15, look='font-weight="bold"')
    bottom = draws[type(chart)](canvas, chart, top + 10)
    if chart.notice:
        bottom = canvas.lines(8, bottom + 6, wrapped(chart.notice, width), look='font-style="italic"')
    return canvas.svg(bottom + 8, f"{chart.title}. {chart.notice}".strip(), sheet=sheet)


def sparkline(values: Sequence[float], *, width: float = 120, height: float = 24) -> str:
    """Return a small line of values in time, from 0 to the highest, as an `svg` element."""
    canvas = Canvas()
    canvas.width = width
    highest, step = max([1.0, *values]), (width - 6) / max(1, len(values) - 1)
    points = [(3 + step * at, height - 3 - (height - 6) * value / highest) for at, value in enumerate(values)]
    canvas.line(*points, width=1.5)
    if points:
        canvas.dot(*points[-1], 2.5, "currentColor")
    return canvas.svg(height, f"from {values[0]:,} to {values[-1]:,}" if values else "no values", sheet=False)


def _named_rows(canvas: Canvas, names: Sequence[str], top: float) -> float:
    """Write the names of rows to the left of the panels, and return the right end of the names."""
    shown = [shortened(name) for name in names]
    right = 8 + max(map(text_width, shown), default=0.0)
    for row, name in enumerate(shown):
        canvas.text(right, top + (row + 0.5) * _ROW, name, anchor="end")
    return right + 8


def _headings(canvas: Canvas, titles: Sequence[str], left: float, pitch: float, top: float) -> float:
    """Write the titles of panels, their last lines on one height, and return the y below them."""
    most = max(title.count("\n") for title in titles) + 1
    for number, title in enumerate(titles):
        lines = title.split("\n")
        canvas.lines(left + number * pitch, top + 15 * (most - len(lines)), lines)
    return top + 15 * most + 4


def _legend(canvas: Canvas, labels: Sequence[str], top: float) -> float:
    x, y = 8.0, top + 12
    for color, label in zip(COLORS, map(shortened, labels), strict=False):
        if x > 8 and x + 18 + text_width(label) > WIDTH:
            x, y = 8.0, y + 18
        canvas.box(x, y - 6, 12, 12, color)
        canvas.text(x + 18, y, label)
        x += 18 + text_width(label) + 20
    return y + 10


def _blocks(canvas: Canvas, chart: Blocks, top: float) -> float:
    rows = [row for panel in chart.panels for row in panel.rows]
    widest = max([8, *map(len, rows)])
    longest = max([1.0, *(text_width(block.label) for row in rows for block in row)])
    first = top + 19
    left, count = _named_rows(canvas, chart.names, first), 34
    unit = ((WIDTH - left) / len(chart.panels) - count) / widest
    size = min(11.0, 11 * (unit - 4) / longest)
    if size < _LEAST_SIZE:
        size, unit = _LEAST_SIZE, longest * _LEAST_SIZE / 11 + 4
    pitch = unit * widest + count
    _headings(canvas, [panel.title for panel in chart.panels], left, pitch, top)
    for number, panel in enumerate(chart.panels):
        x = left + number * pitch
        for row, blocks in enumerate(panel.rows):
            y = first + row * _ROW
            for place, block in enumerate(blocks):
                color = COLORS[block.kind]
                canvas.box(x + place * unit, y + 3, unit - 1.5, _ROW - 6, color)
                ink = "#fff" if color in DARK else "#000"
                middle = x + (place + 0.5) * unit - 0.75
                canvas.text(middle, y + _ROW / 2, block.label, size=size, anchor="middle", fill=ink)
            canvas.text(x + len(blocks) * unit + 4, y + _ROW / 2, f"{len(blocks):,}", size=9, look='opacity="0.7"')
        canvas.line((x, first), (x, first + _ROW * len(panel.rows)))
    return _legend(canvas, chart.legend, first + _ROW * len(chart.names))


def _bars(canvas: Canvas, chart: Bars, top: float) -> float:
    titles = [panel.title for panel in chart.panels]
    first = top + 15 * (max(title.count("\n") for title in titles) + 1) + 4
    left = _named_rows(canvas, chart.names, first)
    headings = max(text_width(line) for title in titles for line in title.split("\n"))
    figures = max(text_width(f"{value or 0:,}") for panel in chart.panels for value in panel.values)
    pitch = max((WIDTH - left) / len(chart.panels), headings + 10, figures + 30)
    _headings(canvas, titles, left, pitch, top)
    for number, panel in enumerate(chart.panels):
        x, largest = left + number * pitch, max([value or 0 for value in panel.values] + [0]) or 1
        for row, value in enumerate(panel.values):
            length = (pitch - figures - 14) * (value or 0) / largest
            y = first + row * _ROW
            canvas.box(x, y + 4, length, _ROW - 8, COLORS[chart.kinds[row] if chart.kinds else 0])
            canvas.text(x + length + 4, y + _ROW / 2, "–" if value is None else f"{value:,}")
        canvas.line((x, first), (x, first + _ROW * len(panel.values)))
    return first + _ROW * len(chart.names)


def _lines(canvas: Canvas, chart: Lines, top: float) -> float:
    pitch, height = WIDTH / len(chart.rows[0]), 210.0
    width, low, high = pitch - 80, log10(min(chart.x)), log10(max(chart.x))

    def across(x: float) -> float:
        return width * (log10(x) - low) / ((high - low) or 1)

    for panels in chart.rows:
        first = _headings(canvas, [panel.title for panel in panels], 55, pitch, top)
        bottom = first + height
        for number, panel in enumerate(panels):
            left = 60 + number * pitch
            end = _decades(max([1.0, *(max(values) for values in panel.values)]) * 1.5)
            for power in range(-1, int(end)):
                y = bottom - height * _decades(10**power if power >= 0 else 0) / end
                canvas.text(left - 10, y, f"{10**power if power >= 0 else 0:,}", anchor="end")
                canvas.line((left - 6, y), (left + width + 6, y), look='opacity="0.2"')
            for series, values in enumerate(panel.values):
                thick = max(6.0 - 1.5 * series, 1.2)  # so that a line which covers another leaves its edges visible
                points = [
                    (left + across(x), bottom - height * _decades(value) / end)
                    for x, value in zip(chart.x, values, strict=True)
                ]
                canvas.line(*points, width=thick, stroke=COLORS[series % 7])
                for point in points:
                    canvas.dot(*point, thick / 2 + 2, COLORS[series % 7])
            canvas.line((left - 6, first), (left - 6, bottom), (left + width + 6, bottom))
            for x in chart.x:
                canvas.text(left + across(x), bottom + 11, f"{x:,.0f}", anchor="middle")
            canvas.text(left + width / 2, bottom + 27, chart.x_label, anchor="middle")
        top = bottom + 42
    return _legend(canvas, chart.series, top)


def _decades(value: float) -> float:
    """Return the place of a value on a logarithmic axis that is linear from 0 to 1."""
    return value if value < 1 else 1 + log10(value)


def _exchange(canvas: Canvas, chart: Exchange, top: float) -> float:
    names, bold = [name.split("\n") for name in chart.names], 'font-weight="bold"'
    pitch = max([96.0, *(text_width(line, 9.5) * 1.1 + 8 for name in names for line in name)])
    halves = [text_width(arrow.text, 9.5) / 2 for arrow in chart.arrows]
    middles = [(arrow.source + arrow.target) / 2 * pitch for arrow in chart.arrows]
    labels = 16 + max(text_width(arrow.label) for arrow in chart.arrows)
    left = labels + max(pitch / 2, *(half - middle for half, middle in zip(halves, middles, strict=True)))
    first = top + 13 * max(map(len, names)) + 8
    bottom = first + _ROW * len(chart.arrows) + 6
    for place, name in enumerate(names):
        x = left + place * pitch
        canvas.line((x, first), (x, bottom), look='opacity="0.3"')
        for number, line in enumerate(reversed(name)):
            canvas.text(x, first - 8 - 13 * number, line, size=9.5, anchor="middle", look=bold)
    columns = [
        left + max((len(names) - 0.5) * pitch, *(m + half + 16 for half, m in zip(halves, middles, strict=True)))
    ]
    for place, heading in enumerate(chart.headings):
        texts = [heading, *(arrow.cells[place] for arrow in chart.arrows)]
        columns.append(columns[-1] + max(map(text_width, texts)) * 1.1 + 14)
        canvas.text(columns[place], first - 8, heading, look=bold)
    before: tuple[str, ...] = ()
    for row, (arrow, middle, half) in enumerate(zip(chart.arrows, middles, halves, strict=True)):
        y = first + row * _ROW + 12
        canvas.text(labels - 8, y, arrow.label, anchor="end")
        for place, cell in enumerate(arrow.cells):
            canvas.text(columns[place], y, cell, look=bold if before and before[place] != cell else "")
        before, start, to, y = arrow.cells, left + arrow.source * pitch, left + arrow.target * pitch, y + 11
        if arrow.source == arrow.target:
            canvas.dot(start, y, 3.5, COLORS[2])
        else:
            back = 8 if start < to else -8
            canvas.line((start, y), (to - back / 2, y), stroke="#2b8fd0", width=1.5)
            canvas.polygon((to, y), (to - back, y - 4), (to - back, y + 4), fill="#2b8fd0")
        canvas.line((left + middle - half, y - 11), (left + middle + half, y - 11), width=10, look='class="paper"')
        canvas.text(left + middle, y - 11, arrow.text, size=9.5, anchor="middle")
    return bottom
