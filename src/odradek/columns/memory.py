"""Bytes at an address, for compiled code: no bounds are checked here, so every caller proves them first.

Batches of one call lie in several buffers (the frame that came in, and one per decompressed batch). A kernel gets their
addresses as numbers, which compiles once and costs nothing per buffer; whoever calls it keeps the buffers alive.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from odradek.protocol.compression import Buffer

_BYTE: Final = ir.IntType(8)


def address(buffer: Buffer) -> int:
    """Where the buffer's first byte is; 0 for an empty one. Valid as long as somebody holds the buffer."""
    if not len(buffer):
        return 0
    place: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return place


@intrinsic  # type: ignore[untyped-decorator]
def load(_typing: Any, _place: Any) -> tuple[Any, Callable[..., Any]]:
    """The byte at an address, as an int64 of 0 … 255."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def load_word(_typing: Any, _place: Any) -> tuple[Any, Callable[..., Any]]:
    """The eight bytes at an address, in the machine's order, as a uint64."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(_typing: Any, _place: Any, _value: Any) -> tuple[Any, Callable[..., Any]]:
    """Write an int64's low byte at an address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_int32(_typing: Any, _place: Any, _value: Any) -> tuple[Any, Callable[..., Any]]:
    """Write an int64's low four bytes at an address that four divides, in the machine's order."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.IntType(32)
        builder.store(builder.trunc(arguments[1], kind), builder.inttoptr(arguments[0], kind.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy(_typing: Any, _to: Any, _from: Any, _count: Any) -> tuple[Any, Callable[..., Any]]:
    """Copy `count` bytes between addresses that do not overlap."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointers = [builder.inttoptr(place, _BYTE.as_pointer()) for place in arguments[:2]]
        cgutils.raw_memcpy(builder, pointers[0], pointers[1], arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
