"""Loops over records in C (`records.c`), called by ctypes, which releases the interpreter's lock.

`hatch_build.py` compiles the library when the package is built or installed. Where it is missing, Python does the same
work, slower: `LIBRARY` is None then, and `MISSING` says why. `ODRADEK_KERNELS=off` does without it on purpose.
"""

import ctypes
import logging
import os
import zlib
from pathlib import Path
from struct import Struct
from typing import Final, Protocol, TypeAlias, cast

from odradek.model import Buffer

Place: TypeAlias = int | bytes | None
"""An address, or bytes, passed as a pointer to the first; None is the null pointer. A function keeps no address."""

SOURCE: Final = Path(__file__).with_name("records.c")
FILE: Final = Path(__file__).with_name("records.so")
_OFF: Final = "ODRADEK_KERNELS=off"


class Library(Protocol):
    """The functions of `records.c`, which has their arguments' types; sizes are in bytes, times in ms.

    Nothing is checked but bytes of records: the caller answers for addresses, sizes and row numbers.
    """

    def check(self, header: Place, records: Place, size: int, now_ms: int, limits: Place) -> int:
        """Check a batch's records as `record_walk.walk_records` does; return -1 if any is invalid.

        `records` is decompressed; None: they follow `header`. Without an invalid one, return twice the largest
        timestamp + 1, and 1 more if the offset deltas are 0, 1, 2 and so on.
        """

    def rows(
        self,
        data: Place,
        size: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        fixed_timestamp: int,
        rows: Place,
    ) -> int:
        """Fill a row of `ROW` for each record; return `count`, or -1 if one is malformed."""

    def decode(
        self,
        sections: Place,
        section_count: int,
        time_factor: int,
        offsets: Place,
        timestamps: Place,
        keys: Place,
        values: Place,
        headers: Place,
        result: Place,
    ) -> int:
        """Decode `SECTION` rows to columns; return the number of records, or -1 - b if batch b is malformed."""

    def decode_headers(
        self, places: Place, rows: int, list_ends: Place, keys: Place, values: Place, result: Place
    ) -> int:
        """Decode the headers that `decode` has found; return their number."""

    def encode(
        self,
        rows: Place,
        row_count: int,
        start: int,
        timestamps: Place,
        columns: Place,
        output: Place,
        room: int,
        max_bytes: int,
        result: Place,
    ) -> int:
        """Encode rows of columns; return their number, or 0 if the first one does not fit into `room`."""

    def murmur2(self, keys: Place, row_count: int, partition_count: int, partitions: Place) -> None:
        """Write the partition of each key, by Kafka's rule; -1 for null."""

    def digest(self, data: Place, size: int, secret: Place, words: Place) -> None:
        """Write the 128 bits of SipHash-2-4 to `words`."""

    def find_batches(
        self,
        place: Place,
        size: int,
        lowest: int,
        end_offset: int,
        now_ms: int,
        batches: Place,
        most: int,
        totals: Place,
    ) -> int:
        """Fill `batches` for the whole batches in a buffer; `totals` has their number and size."""

    def index_keys(
        self,
        batches: Place,
        count: int,
        from_offset: int,
        slots: Place,
        slot_count: int,
        most_keys: int,
        secret: Place,
        totals: Place,
    ) -> int:
        """Store the last offset of each key; return `DONE`, `FULL`, or the row of a malformed batch."""

    def keep_records(
        self,
        batches: Place,
        count: int,
        latest_offset: int,
        horizon_ms: int,
        slots: Place,
        slot_count: int,
        secret: Place,
        flags: Place,
        output: Place,
        kept: Place,
        totals: Place,
    ) -> int:
        """Write the batches that compaction keeps; return `DONE`, or the row of a malformed batch."""


DONE: Final = -1
FULL: Final = -2
"""Results other than a row number: all batches are processed; the table of keys is full (`index_keys` only)."""
ROW: Final = Struct("@7q")
"""Offset, timestamp, start and end of the key, of the value (-1: null), start of the headers (-1: none)."""
MOST_GROWTH: Final = 11
"""Limit of the bytes by which compaction lengthens a record."""


def source_hash(source: bytes) -> str:
    """Return the CRC-32 of `source`, which the library stores."""
    return f"{zlib.crc32(source):08x}"


def load(file: Path = FILE, source: Path = SOURCE) -> tuple[Library | None, str]:
    """Return the library, or None and why there is none."""
    if os.environ.get("ODRADEK_KERNELS") == "off":
        return None, _OFF
    if not file.exists():
        return None, "Odradek was installed without a C compiler, or compiling failed"
    try:
        library = ctypes.CDLL(str(file))
        made_from = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "source_hash"))).decode()
    except (OSError, ValueError) as error:
        return None, f"{file} cannot be loaded: {error}"
    if made_from != source_hash(source.read_bytes()):
        return None, f"{file} was made from another {source.name}: install Odradek again"
    for name, function in vars(Library).items():
        if not name.startswith("_"):
            declared, types = getattr(library, name), function.__annotations__
            declared.argtypes = [
                ctypes.c_int64 if kind is int else ctypes.c_void_p for each, kind in types.items() if each != "return"
            ]
            declared.restype = None if types["return"] is None else ctypes.c_int64
    return cast("Library", library), ""


LIBRARY, MISSING = load()
if MISSING not in ("", _OFF) and FILE.exists():
    logging.getLogger("odradek.kernels").warning("Records are read and written by Python, more slowly: %s", MISSING)


class _View(ctypes.Structure):
    """Python's `Py_buffer`."""

    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("object", ctypes.py_object),
        ("length", ctypes.c_ssize_t),
        ("item_size", ctypes.c_ssize_t),
        ("read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer, _release_buffer = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)
_release_buffer.argtypes = (ctypes.POINTER(_View),)
_release_buffer.restype = None


def address(buffer: Buffer) -> int:
    """Return the address of the buffer's first byte, valid while the buffer is referenced and not resized.

    The buffer's export ends before this returns, so that a pool can still see whether a view of it is alive.
    """
    view = _View()
    _get_buffer(buffer, ctypes.byref(view), 0)
    place = view.buffer or 0
    _release_buffer(ctypes.byref(view))
    return place
