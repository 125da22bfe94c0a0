"""The texts of a picture with their places, read from its SVG."""

from dataclasses import dataclass
from xml.etree import ElementTree

from odradek.lab.pictures import Chart
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.svg import text_width


@dataclass(frozen=True)
class ShownText:
    """A text; lengths are in pixels."""

    text: str
    left: float
    middle: float
    size: float
    is_gap: bool

    @property
    def right(self) -> float:
        """The right end of the text."""
        return self.left + text_width(self.text, self.size)

    def is_within(self, width: float, height: float) -> bool:
        """Return whether all of the text is inside a picture."""
        half = self.size / 2
        return self.left >= 0 and self.right <= width and half <= self.middle <= height - half


class Shown:
    """A picture's size and its texts."""

    def __init__(self, chart: Chart) -> None:
        root = ElementTree.fromstring(draw(chart))
        self.width, self.height = float(root.attrib["width"]), float(root.attrib["height"])
        elements = [element for element in root.iter() if element.tag.endswith("}text")]
        self.texts = [_shown(element) for element in elements if element.text]


def _shown(element: ElementTree.Element) -> ShownText:
    text, size = element.text or "", float(element.attrib["font-size"])
    part = {"start": 0.0, "middle": 0.5, "end": 1.0}[element.attrib["text-anchor"]]
    return ShownText(
        text=text,
        left=float(element.attrib["x"]) - part * text_width(text, size),
        middle=float(element.attrib["y"]) - 0.35 * size,
        size=size,
        is_gap=element.get("class") == "gap",
    )
