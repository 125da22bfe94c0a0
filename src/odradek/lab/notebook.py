"""The HTML of the lab's results for notebooks: each result's `_repr_html_` calls `html`.

`pictures` imports the results, so results cannot import it: `html` imports it at the first call.
"""

from importlib import import_module


def html(result: object) -> str:
    """Return the picture of a result as HTML."""
    shown: str = import_module("odradek.lab.pictures").html(result)
    return shown
