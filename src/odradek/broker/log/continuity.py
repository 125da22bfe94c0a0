"""The rule by which a batch continues a log: for followers, recovery, compaction, and checks for damage."""

from typing import Final

from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.model import Buffer
from odradek.protocol.batches.record_batch import BatchHeader, verify_crc

WRONG_CHECKSUM: Final = "a wrong checksum"
_MAX_OFFSET: Final = (1 << 63) - 1
_ANY_EPOCH: Final = -(1 << 31)


def discontinuity(
    header: BatchHeader,
    data: Buffer | None,
    position: int = 0,
    *,
    next_offset: int,
    last_offset: int = _MAX_OFFSET,
    leader_epoch: int = _ANY_EPOCH,
) -> str | None:
    """Return what a batch has that does not continue a log, as in "the batch has a wrong checksum"; None if it does.

    The log ends before `next_offset`, in `leader_epoch`; no offset may be above `last_offset`. Gaps between offsets are
    valid, because compaction leaves them. The checksum is of the batch at `position` of `data`; None skips it.
    """
    if data is not None and not verify_crc(data, position, header):
        return WRONG_CHECKSUM
    if not next_offset <= header.base_offset <= header.last_offset <= last_offset:
        upper = "on" if last_offset == _MAX_OFFSET else f"to {last_offset}"
        return f"the offsets {header.base_offset} to {header.last_offset}, not from {next_offset} {upper}"
    if header.partition_leader_epoch < leader_epoch:
        return f"leader epoch {header.partition_leader_epoch}, after {leader_epoch}"
    return None


def is_gap(end_offset: int, base_offset: int, *, is_after_empty: bool, known_offset: int) -> bool:
    """Return whether records may be lost between segments: one ends at `end_offset`, the next one has `base_offset`.

    Nothing is lost below `known_offset`, where records were deleted or compacted. A gap after an empty segment is no
    loss if it exceeds `MAX_RELATIVE_OFFSET`: a follower of a compacted log then begins a new segment.
    """
    is_far = is_after_empty and base_offset - end_offset > MAX_RELATIVE_OFFSET + 1
    return base_offset > max(end_offset, known_offset) and not is_far


def described(header: BatchHeader, fault: str) -> str:
    """Return the reason of a `DamagedFileError` for a batch with a `discontinuity`."""
    return f"has a batch with {fault}, at offset {header.base_offset}"
