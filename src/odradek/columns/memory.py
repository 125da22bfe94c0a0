"""Reads and writes memory by address in compiled code; the caller checks bounds and keeps the buffers alive.

The batches of one call are in several buffers: the received frame, and one per decompressed batch. Passing addresses as
integers costs nothing per buffer.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from odradek.model import Buffer

_BYTE: Final = ir.IntType(8)
_LONG: Final = ir.IntType(64)


def address(buffer: Buffer) -> int:
    """Return the address of the buffer's first byte, valid while the buffer is referenced; 0 for an empty buffer."""
    if not len(buffer):
        return 0
    place: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return place


@intrinsic  # type: ignore[untyped-decorator]
def load(_typing: Any, _place: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the byte at an address, as an int64 of 0 … 255."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def load_word(_typing: Any, _place: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the eight bytes at an address, in native order, as a uint64."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(types.int64), generate


def _in_network_order(builder: Any, number: Any) -> Any:
    return builder.bswap(number) if sys.byteorder == "little" else number


def _network_reader(bits: int, *, is_signed: bool) -> Any:
    def read(_typing: Any, _place: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            number.align = 1
            number = _in_network_order(builder, number)
            if bits == 64:
                return number
            return builder.sext(number, _LONG) if is_signed else builder.zext(number, _LONG)

        return types.int64(types.int64), generate

    return intrinsic(read)


def _network_writer(bits: int) -> Any:
    def write(_typing: Any, _place: Any, _value: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            number = arguments[1] if bits == 64 else builder.trunc(arguments[1], kind)
            pointer = builder.inttoptr(arguments[0], kind.as_pointer())
            builder.store(_in_network_order(builder, number), pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(write)


read_int16, read_int32, read_uint32, read_int64 = (
    _network_reader(16, is_signed=True),
    _network_reader(32, is_signed=True),
    _network_reader(32, is_signed=False),
    _network_reader(64, is_signed=True),
)
"""Read a big-endian number at any address, aligned or not, as an int64."""

write_int16, write_int32, write_int64 = map(_network_writer, (16, 32, 64))
"""Write an int64, or its low bytes, in big-endian order at any address, aligned or not."""


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
    """Write an int64's low four bytes at an address divisible by four, in native order."""

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
