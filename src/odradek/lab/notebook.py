"""The lab's results as notebooks show them: each result's `_repr_html_` is its picture.

The pictures know the results, so results do not import them: they are imported with the first result that is shown.
"""

from importlib import import_module


def html(result: object) -> str:
    """Return the picture of a result as HTML (`odradek.lab.pictures.html`)."""
    shown: str = import_module("odradek.lab.pictures").html(result)
    return shown
