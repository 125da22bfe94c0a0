"""How compiled compaction and who calls it share memory: the places of numbers in arrays of int64. Needs no numba.

```
row      one for each batch of a buffer, ROW_WIDTH numbers
mark     one for each of them, MARK_WIDTH: where in the buffer its checksummed bytes begin and end, and the checksum
slot     one for each key, SLOT_BYTES: two words of its digest, and its last offset; free where the first word is 0
kept     one for each batch that is left, KEPT_WIDTH
state    STATE_WIDTH numbers that go in and out
```
"""

from typing import Final

PLACE: Final = 0
"""The address of the batch; 0 where only its records are there, which were decompressed."""
SECTION: Final = 1
"""The address of the records, SECTION_SIZE bytes."""
SECTION_SIZE: Final = 2
RECORD_COUNT: Final = 3
BASE_OFFSET: Final = 4
LAST_OFFSET_DELTA: Final = 5
BASE_TIMESTAMP: Final = 6
"""The batch's greatest timestamp with FIXED_TIMESTAMP, which is 1 if all records have that."""
FIXED_TIMESTAMP: Final = 7
HORIZON: Final = 8
"""0 without a delete horizon, 1 with one, 2 with one that has passed."""
MAX_TIMESTAMP: Final = 9
KEEP_EMPTY: Final = 10
"""1 if the batch is to stay without records should none be left."""
IS_OTHER: Final = 11
"""1 if something else decides first: a batch that is compressed, transactional, control, or empty."""
ROW_WIDTH: Final = 12

MARK_WIDTH: Final = 3

SLOT_BYTES: Final = 24

KEPT_OFFSET: Final = 0
"""The batch's base offset; KEPT_LAST_OFFSET its last."""
KEPT_LAST_OFFSET: Final = 1
KEPT_SIZE: Final = 2
"""The bytes in the output; -1 if they are as they were and only the records were there."""
KEPT_COUNT: Final = 3
KEPT_TIMESTAMP: Final = 4
KEPT_CHANGES: Final = 5
"""CHANGED if the batch needs another checksum, and NEW_HORIZON if it got its delete horizon."""
KEPT_WIDTH: Final = 6
CHANGED: Final = 1
NEW_HORIZON: Final = 2

USED_BYTES: Final = 0
"""State: how much of the buffer the batches take that were found."""
OTHERS: Final = 1
"""State: how many of them have IS_OTHER."""
KEYS: Final = 2
"""State: the number of keys in the slots, and up to which offset they are noted."""
LATEST_OFFSET: Final = 3
STATE_WIDTH: Final = 4

FULL: Final = -2
"""What `index_keys` answers when there is no room for the next key."""
DONE: Final = -1
MOST_GROWTH: Final = 11
"""By how many bytes a record may become longer."""
MIN_RECORD_BYTES: Final = 7
