"""Keeps another package's import from importing a large one that it could do without."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden_package(name: str) -> Iterator[None]:
    """Let imports of package `name` fail in this block as if it were not installed, unless it is imported already."""
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        if sys.modules.get(name) is None:
            sys.modules.pop(name, None)
