"""CRC-32C, by the package crc32c: a million bytes take 70 µs.

The package looks up its own version when it is imported, with the parser of e-mail and half of the archive modules: a
fifteenth of a broker's start, and more than a megabyte of its memory. Its compiled part alone has neither.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final, Protocol

from odradek.protocol.compression import Buffer


class Checksum(Protocol):
    """Of `data`, or of what had the checksum `value` and `data` after it."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """See the class."""


def _load() -> Any:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        from crc32c import crc32c as whole  # another release, which is built in another way

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c


crc32c: Final[Checksum] = _load()
