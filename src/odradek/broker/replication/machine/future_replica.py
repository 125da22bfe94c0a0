"""The next step of the copy of a log that moves between data directories (KIP-113). Pure.

The copy follows its log as a follower does its leader; both are on one broker, so that their offsets are compared
without requests.

```
the copy ends before the log's start offset      RESTART      retention was faster
the copy starts after the log                    RESTART
the log was truncated before the copy's start    RESTART
the log was truncated before the copy's end      TRUNCATE     also if the copy ends after the log
the copy ends before the log's end               COPY
else                                             SWAP
```
"""

from enum import Enum, auto
from typing import NamedTuple


class Action(Enum):
    """TRUNCATE the copy to an offset, RESTART it empty at an offset, COPY from an offset, SWAP copy and log."""

    TRUNCATE = auto()
    RESTART = auto()
    COPY = auto()
    SWAP = auto()


class Extent(NamedTuple):
    """A log's first and end offset."""

    start: int
    end: int


def next_step(log: Extent, copy: Extent, truncated_to: int | None) -> tuple[Action, int]:
    """Return the action and its offset. `truncated_to` is where the log was truncated since the last step, or None."""
    end = min(copy.end, log.end if truncated_to is None else truncated_to, log.end)
    if end < max(log.start, copy.start) or copy.start > log.start:
        return Action.RESTART, log.start
    if end < copy.end:
        return Action.TRUNCATE, end
    return (Action.COPY if end < log.end else Action.SWAP), end
