"""The rows that compiled compaction and its caller share: numpy arrays here, pointers in `compaction_kernel`."""

from typing import Final

import numpy as np

BATCH: Final = np.dtype(
    [
        ("place", np.int64),  # the address of the batch
        ("size", np.int64),  # in bytes, with the header
        ("crc", np.int64),
        ("record_count", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),  # the timestamp of every record with `has_fixed_timestamp`
        ("has_fixed_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("horizon", np.int64),  # 0 without a delete horizon, 1 with one, 2 with one that has passed
        ("is_other", np.int64),  # 1 if the caller decides: compressed, transactional, control or empty
        ("keep_empty", np.int64),  # 1 if the batch stays even without records; set by the caller
    ]
)
KEPT: Final = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("size", np.int64),  # in bytes, as it was written
        ("record_count", np.int64),
        ("max_timestamp", np.int64),
        ("is_changed", np.int64),  # 1 if the caller has to write another checksum
        ("has_new_horizon", np.int64),
    ]
)
SLOT: Final = np.dtype([("first", np.uint64), ("second", np.uint64), ("offset", np.int64)])
"""A key's 128-bit digest and its last offset (`log.cleaner.offset_map`); the slot is free where `first` is 0."""
RESULT: Final = np.dtype([("count", np.int64), ("size", np.int64), ("latest_offset", np.int64)])
"""The result of a kernel beside its status; `index_keys` also reads it."""

# A kernel's status is one of these, or the number of a malformed batch.
DONE: Final = -1
FULL: Final = -2
"""The key table is full."""

MIN_RECORD_BYTES: Final = 7
MOST_GROWTH: Final = 11
"""Bytes by which a record may become longer."""
