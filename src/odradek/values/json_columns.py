"""Decodes JSON objects to Arrow columns, where Spark would read the same; others are left to Spark.

    binary → struct(the fields), null for values that are left

Spark's `from_json` accepts more than this: NaN, single quotes, texts for numbers, many ways to write a time.
"""

import re
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_DAY: Final = r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIMES: Final = {
    pa.date32(): f"^{_DAY}$",
    # A time without a zone is one of the session's time zone.
    pa.timestamp(
        "us", "UTC"
    ): rf"^{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$",
}
"""Texts that are decoded, by the type of their field."""
_PLAIN: Final = {pa.float64(): float, pa.string(): str, pa.bool_(): bool, **dict.fromkeys(_TIMES, str)}
_WHOLE: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
"""The bits of the largest number of each type."""
_NAME: Final = re.compile(r'[^"\\\x00-\x1f]+')
"""A field's name that `msgspec` accepts."""


def can_decode(kind: pa.StructType) -> bool:
    """Return whether all fields, and those of structs in it, have types and names that are decoded, and may be null."""
    names = [field.name for field in kind]
    return len(names) == len(set(names)) and all(
        field.nullable
        and _NAME.fullmatch(field.name)
        and (can_decode(field.type) if pa.types.is_struct(field.type) else field.type in _PLAIN or field.type in _WHOLE)
        for field in kind
    )


def decode_objects(array: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Return the objects of an array of bytes, null for those that are left."""
    rows = list(_rows(array, kind))
    is_left = np.fromiter((row is None for row in rows), bool, len(rows))
    found = _structs(rows, kind, is_left)
    return pa.StructArray.from_arrays(found.flatten(), fields=list(kind), mask=pa.array(is_left))


def _rows(array: pa.Array, kind: pa.StructType) -> Iterator[Any]:
    decode = _decoder(kind).decode
    is_text = _is_utf8(array)
    for value in array.to_pylist():
        try:
            # The decoder does not look into texts that it skips.
            yield None if value is None or not (is_text or value.decode()) else decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield None


def _is_utf8(array: pa.Array) -> bool:
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@cache
def _decoder(kind: pa.StructType) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_class_of(kind))


def _class_of(kind: pa.StructType) -> type[msgspec.Struct]:
    attributes = {f"f{index}": field for index, field in enumerate(kind)}
    fields = [(attribute, _type_of(field.type) | None, None) for attribute, field in attributes.items()]
    names = {attribute: field.name for attribute, field in attributes.items()}
    return msgspec.defstruct("Object", fields, rename=names, gc=False)


def _type_of(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return _class_of(kind)
    if (bits := _WHOLE.get(kind)) is not None:
        return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    return _PLAIN[kind]


def _structs(rows: list[Any], kind: pa.StructType, is_left: NDArray[np.bool_]) -> pa.StructArray:
    """Return the rows as structs; set `is_left` for rows with a text that is no time."""
    mask = [row is None for row in rows]
    arrays = []
    for index, field in enumerate(kind):
        value_of = attrgetter(f"f{index}")
        values = [None if row is None else value_of(row) for row in rows]
        if pa.types.is_struct(field.type):
            arrays.append(_structs(values, field.type, is_left))
        elif field.type in _TIMES:
            arrays.append(_times(pa.array(values, pa.string()), field.type, is_left))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(mask, pa.bool_()))


def _times(texts: pa.StringArray, kind: pa.DataType, is_left: NDArray[np.bool_]) -> pa.Array:
    is_odd = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _TIMES[kind])), fill_value=False)
    is_left |= is_odd.to_numpy(zero_copy_only=False)
    texts = pc.if_else(is_odd, pa.nulls(len(texts), texts.type), texts)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        # A day or an hour that does not exist.
        is_odd = pa.array([not _is_time(text, kind) for text in texts])
        is_left |= is_odd.to_numpy(zero_copy_only=False)
        return pc.if_else(is_odd, pa.nulls(len(texts), texts.type), texts).cast(kind)


def _is_time(text: pa.StringScalar, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
