"""NumPy's types of the rows that the library's functions of compaction read and write (`odradek.kernels`)."""

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
        ("base_timestamp", np.int64),  # if `has_fixed_timestamp`, the timestamp of every record
        ("has_fixed_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("horizon", np.int64),  # delete horizon: 0 none, 1 in the future, 2 passed
        ("is_other", np.int64),  # 1 if compressed, transactional, control or empty: handled by the caller
        ("keep_empty", np.int64),  # 1 if the batch stays even without records; set by the caller
    ]
)
KEPT: Final = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("size", np.int64),  # in bytes, after compaction
        ("record_count", np.int64),
        ("max_timestamp", np.int64),
        ("is_changed", np.int64),  # 1 if the caller must write a new checksum
        ("has_new_horizon", np.int64),
    ]
)
SLOT: Final = np.dtype([("first", np.uint64), ("second", np.uint64), ("offset", np.int64)])
"""A key's 128-bit digest and its last offset (`broker.log.cleaner.offset_map`); the slot is free if `first` is 0."""
RESULT: Final = np.dtype([("count", np.int64), ("size", np.int64), ("latest_offset", np.int64)])
"""The result of a function besides its status; `index_keys` also reads it."""
