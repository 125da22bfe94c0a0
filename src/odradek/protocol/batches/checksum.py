"""CRC-32C, by the package crc32c: a million bytes take 70 µs.

Importing the package parses its own metadata with the e-mail parser, which is a fifteenth of a broker's start and more
than a megabyte of memory, so only its compiled module is imported.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final, Protocol

from odradek.model import Buffer


class Checksum(Protocol):
    """The checksum of `data`, or of the bytes whose checksum is `value` followed by `data`."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the checksum."""


def _load() -> Any:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        from crc32c import crc32c as whole  # a release of crc32c with another layout

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c


crc32c: Final[Checksum] = _load()
