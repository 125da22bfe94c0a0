"""Keeps another package's import from importing a large one that it could do without.

CPU seconds of one process's imports, at load, where the large package is installed, with and without hiding it:

    hypothesis from kio      a broker 0.8, 1.4; a client 0.5, 0.9; error codes alone 0.06, 0.58
    pandas from PySpark      a driver 0.8, 1.9
"""

import sys
from _thread import get_ident  # `threading` would be imported by every room
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Hider:
    """A finder of `sys.meta_path`; its base class in `importlib.abc` would import `tempfile` and 20 others, 9 ms."""

    def __init__(self, name: str) -> None:
        self._name, self._thread = name, get_ident()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == self._name and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


@contextmanager
def hidden_package(name: str) -> Iterator[None]:
    """Let this thread's imports of package `name` fail in this block, unless it is imported already."""
    hider = _Hider(name)
    sys.meta_path.insert(0, hider)
    try:
        yield
    finally:
        sys.meta_path.remove(hider)
