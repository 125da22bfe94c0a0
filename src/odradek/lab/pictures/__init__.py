"""Pictures of the lab's results: a result → a chart (`charts`, `views`, `lanes`) → SVG, PNG or HTML (`drawing`).

Only `drawing` imports matplotlib, which the extra `lab` installs. The same result gives the same bytes.
"""

from odradek.lab.pictures.charts import Chart
from odradek.lab.pictures.files import FORMATS, check_file, html, picture
from odradek.lab.pictures.views import chart_of

__all__ = ["FORMATS", "Chart", "chart_of", "check_file", "html", "picture"]
