"""Returns a picture as the bytes of a file, or as HTML for a notebook."""

from html import escape
from importlib.util import find_spec
from pathlib import PurePath
from typing import Final

from odradek.lab.case import LabError
from odradek.lab.pictures.charts import Chart
from odradek.lab.pictures.views import chart_of
from odradek.model import install_command

FORMATS: Final = ("svg", "png")


def check_file(name: str) -> str:
    """Return the format of a file name, `svg` or `png`. Raises `LabError` for another one, or without matplotlib."""
    ending = PurePath(name).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise LabError(f"{name} is not a name of a picture: let it end in .svg or .png")
    if not _can_draw():
        raise LabError("pictures need matplotlib, which is not installed: " + install_command("lab"))
    return ending


def picture(chart: Chart, file_format: str) -> bytes:
    """Return a chart as an SVG or PNG file. Raises `LabError` without matplotlib."""
    check_file(f"picture.{file_format}")
    from odradek.lab.pictures.drawing import draw

    return draw(chart, file_format)


def html(result: object) -> str:
    """Return a result for a notebook: its picture, or without matplotlib its text and how to install matplotlib."""
    if not _can_draw():
        return f"<pre>{escape(repr(result))}</pre><p>A picture needs matplotlib: {install_command('lab')}</p>"
    svg = picture(chart_of(result), "svg").decode()
    return svg[svg.index("<svg") :]


def _can_draw() -> bool:
    return find_spec("matplotlib") is not None
