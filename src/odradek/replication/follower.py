"""Where a follower's log and its leader's part, and what the follower cuts (KIP-101, KIP-279, KIP-595).

A fetch says the epoch of the follower's last record. Where the leader's log has fewer records of that epoch, or none,
it answers with a divergence: the last epoch it has that is not newer, and where that ends. The follower cuts what lies
beyond in either log, and asks again: each round goes back one epoch at least, and never behind what both have.
"""

from collections.abc import Callable

from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass

EndOffsetOf = Callable[[int], tuple[int, int]]
"""Of a log: an epoch → the last epoch that is not newer, and where it ends, as OffsetForLeaderEpoch defines them.

`(-1, -1)` if the epoch is newer than all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """What the leader says: of the epochs up to the one asked for, its last is `epoch`, up to `end_offset`."""

    epoch: int
    end_offset: int


def divergence(end_offset_of: EndOffsetOf, *, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
    """What the leader answers to a fetch from `fetch_offset` of a log that ends in `last_fetched_epoch` (-1: unknown).

    None if the logs agree up to there: then records follow. Raises `KafkaError` OFFSET_OUT_OF_RANGE if the leader
    cannot tell, since all its epochs are older.
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
    """Where the follower's log, which ends at `log_end_offset`, is to end."""
    epoch, end_offset = end_offset_of(found.epoch)
    if epoch < 0:
        cut = found.end_offset
    elif epoch == found.epoch:
        cut = min(end_offset, found.end_offset)
    else:
        cut = end_offset
    return min(cut, log_end_offset)
