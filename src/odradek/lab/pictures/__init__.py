"""Pictures of the lab's results: a result → a chart (`charts`, `views`, `lanes`) → SVG (`drawing`, `svg`).

The same result gives the same bytes.
"""

from odradek.lab.pictures.charts import Chart
from odradek.lab.pictures.views import chart_of, check_file, html, picture

__all__ = ["Chart", "chart_of", "check_file", "html", "picture"]
