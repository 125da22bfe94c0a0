"""Returns a picture as the bytes of a file, or as HTML for a notebook."""

from odradek.lab.case import LabError
from odradek.lab.pictures.charts import Chart
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.views import chart_of


def check_file(name: str) -> None:
    """Raise `LabError` for a file name that does not end in `.svg`."""
    if not name.lower().endswith(".svg"):
        raise LabError(
            f"{name}: pictures are SVG, so let the name end in .svg; a browser shows, prints and converts it"
        )


def picture(chart: Chart) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{draw(chart)}\n'.encode()


def html(result: object) -> str:
    """Return a result's picture for a notebook."""
    return draw(chart_of(result))
