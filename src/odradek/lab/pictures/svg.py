"""SVG as text: a canvas of boxes, lines and texts, and the estimated width of a text.

Colours that differ between light and dark come from a style sheet, all others are presentation attributes: there is no
`style` attribute, so that a page whose Content-Security-Policy forbids inline styles may contain the element.
"""

import textwrap
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Final

WIDTH: Final = 960.0
"""The usual width of a picture, in pixels."""
INK: Final = "currentColor"
GAP: Final = "#d00000"
COLORS: Final = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#b0a08f", "#cccccc")
"""The colours of Okabe and Ito, which colour-blind readers can tell apart, without red, which marks gaps."""
DARK: Final = (GAP, "#0072b2")
"""Colours of boxes whose text is white."""
SHEET: Final = (
    ".picture{color:#1a1a1a;background:#fff}.picture .gap{fill:#c00000}.picture .paper{stroke:#fff}"
    "@media (prefers-color-scheme:dark){.picture{color:#e6e6e6;background:#16181d}"
    ".picture .gap{fill:#ff8787}.picture .paper{stroke:#16181d}}"
)
"""The style sheet of a picture that is a file; a page has rules for the same classes in its own."""
_FONT: Final = "'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif"
_EM: Final = {
    **dict.fromkeys("ijlI.,:;'|![]()ft/ \\", 0.38), **dict.fromkeys("r-_*", 0.5), **dict.fromkeys("mwMWQ@%…—+=", 0.99),
    **dict.fromkeys("ABCDEFGHJKLNOPRSTUVXYZ", 0.74),
}  # fmt: skip
"""The widths of characters in DejaVu Sans, the widest of the fonts, as parts of the font's size; others have 0.64."""


class Canvas:
    """The elements of a picture. A text's `y` is its middle; lengths are in pixels."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self.width = WIDTH

    def box(self, x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1) -> None:
        faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
        self._elements.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{fill}"{faint}/>'
        )

    def line(self, *points: tuple[float, float], width: float = 1, stroke: str = INK, look: str = "") -> None:
        """Add a line through points; `look` has more attributes."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._elements.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{_n(width)}"{look and f" {look}"}/>'
        )

    def polygon(self, *points: tuple[float, float], fill: str) -> None:
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._elements.append(f'<polygon points="{path}" fill="{fill}"/>')

    def dot(self, x: float, y: float, radius: float, fill: str) -> None:
        self._elements.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{fill}"/>')

    def text(
        self, x: float, y: float, text: str, *, size: float = 11, anchor: str = "start", fill: str = INK, look: str = ""
    ) -> None:
        """Add a text whose start, middle or end is at x, and make the picture wide enough for it."""
        left = {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        self.width = max(self.width, x + (1 - left) * text_width(text, size) + 4)
        paint = 'class="gap"' if fill == GAP else f'fill="{fill}"'
        self._elements.append(
            f'<text x="{_n(x)}" y="{_n(y + 0.35 * size)}" font-size="{_n(size)}" text-anchor="{anchor}" '
            f"{paint}{look and f' {look}'}>{escape(clean(text))}</text>"
        )

    def lines(self, x: float, y: float, lines: Sequence[str], *, size: float = 11, look: str = "") -> float:
        """Add lines of text below each other, and return the y below them."""
        for number, line in enumerate(lines):
            self.text(x, y + (number + 0.6) * 1.35 * size, line, size=size, look=look)
        return y + len(lines) * 1.35 * size

    def svg(self, height: float, label: str, *, sheet: bool) -> str:
        """Return the element with all that was added; with `sheet`, it needs no other style sheet."""
        style = f"<style>{SHEET}</style>" if sheet else ""
        body = "\n".join(self._elements)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" aria-label="{escape(clean(label))}" '
            f'width="{_n(self.width)}" height="{_n(height)}" viewBox="0 0 {_n(self.width)} {_n(height)}" '
            f'font-family="{_FONT}">{style}\n{body}\n</svg>'
        )


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = 11) -> float:
    """Return about how wide a text is, rather too much than too little."""
    return size * sum(
        _EM.get(letter, 0.64) if letter < "\u0250" else 0.99 + 0.1 * (unicodedata.east_asian_width(letter) == "W")
        for letter in text
    )


def wrapped(text: str, width: float, size: float = 11) -> list[str]:
    """Return the lines of a text of at most a width."""
    return textwrap.wrap(text, int(width / size / 0.64))


def shortened(name: str, length: int = 34) -> str:
    """Return a name of at most `length` characters, shortened in the middle, as the ends of member ids differ."""
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def clean(text: str) -> str:
    """Return a text without characters that XML forbids, or that change the direction or place of others."""
    return "".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co") else each for each in text)


def _n(value: float) -> str:
    return f"{round(value, 1):g}"
