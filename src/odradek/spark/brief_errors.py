"""Errors of the source and the sink in Spark's own: the sentence without the traceback before it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.model import OdradekError


@contextmanager
def brief_errors() -> Iterator[None]:
    """Let Spark report an `OdradekError` of this block by its text alone: its Python process ends then anyway."""
    try:
        yield
    except OdradekError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
