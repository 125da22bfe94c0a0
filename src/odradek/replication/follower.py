"""Where the logs of a follower and its leader diverge, and what the follower truncates (KIP-101, KIP-279, KIP-595).

A fetch names the epoch of the follower's last record. If the leader's log has fewer records of that epoch, or none,
the response is a divergence: the leader's last epoch that is not newer, and its end offset. The follower truncates to
it and fetches again. Each round goes back at least one epoch, and never below what both have.
"""

from collections.abc import Callable

from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass

EndOffsetOf = Callable[[int], tuple[int, int]]
"""Maps an epoch to the last epoch of a log that is not newer and its end offset, as OffsetForLeaderEpoch does.

`(-1, -1)` if the epoch is newer than all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The leader's last epoch that is not newer than the requested one, and its end offset."""

    epoch: int
    end_offset: int


def divergence(end_offset_of: EndOffsetOf, *, fetch_offset: int, last_fetched_epoch: int) -> Divergence | None:
    """Return the divergence for a fetch from `fetch_offset` of a log that ends in `last_fetched_epoch` (-1: unknown).

    Return None if the logs agree up to there. Raise `KafkaError` OFFSET_OUT_OF_RANGE if all of the leader's epochs are
    older.
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
    """Return where the follower truncates its log, which ends at `log_end_offset`."""
    epoch, end_offset = end_offset_of(found.epoch)
    if epoch < 0:
        cut = found.end_offset
    elif epoch == found.epoch:
        cut = min(end_offset, found.end_offset)
    else:
        cut = end_offset
    return min(cut, log_end_offset)
