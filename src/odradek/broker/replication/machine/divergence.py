"""Where the logs of a follower and its leader diverge, and what the follower truncates (KIP-101, KIP-279, KIP-595).

A fetch request has the epoch of the follower's last record. If the leader's log has fewer records of that epoch, or
none, the response has a divergence: the leader's last epoch that is not newer, and that epoch's end offset. The
follower truncates its log and fetches again. Each round goes back at least one epoch, and keeps all records that both
logs have.
"""

from collections.abc import Callable

from msgspec import Struct

from odradek.model import ErrorCode, KafkaError

EndOffsetOf = Callable[[int], tuple[int, int]]
"""Maps an epoch to a log's last epoch that is not newer, and that epoch's end offset (OffsetForLeaderEpoch).

The result is `(-1, -1)` if the epoch is newer than all epochs of the log."""


class Divergence(Struct, frozen=True, kw_only=True):
    """The leader's last epoch that is not newer than the follower's, and that epoch's end offset."""

    epoch: int
    end_offset: int


def divergence(end_offset_of: EndOffsetOf, *, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
    """Return the leader's divergence from a follower's log, or None if the logs agree up to `fetch_offset`.

    `end_offset_of` reads the leader's log. The follower's log ends in `last_fetched_epoch` (-1: unknown, returns None).
    Raise `KafkaError` OFFSET_OUT_OF_RANGE if all of the leader's epochs are older.
    """
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = end_offset_of(last_fetched_epoch)
    if epoch < 0:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"the leader's log has nothing of epoch {last_fetched_epoch}, nor a later one",
        )
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return None
    return Divergence(epoch=epoch, end_offset=end_offset)


def truncation_offset(found: Divergence, end_offset_of: EndOffsetOf, *, log_end_offset: int) -> int:
    """Return the offset to truncate a follower's log to; `end_offset_of` and `log_end_offset` are of that log."""
    epoch, end_offset = end_offset_of(found.epoch)
    if epoch < 0:
        cut = found.end_offset
    elif epoch == found.epoch:
        cut = min(end_offset, found.end_offset)
    else:
        cut = end_offset
    return min(cut, log_end_offset)
