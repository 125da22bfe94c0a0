"""The class `Explanation`, and text functions that all explanations use."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from odradek.model import TopicPartition, first_names


class Explanation(Struct, frozen=True, kw_only=True):
    """Why `strategy` gives `partition` to `member`: sentences in `steps`. `member` is None if no member gets it."""

    partition: TopicPartition
    strategy: str
    member: str | None
    steps: tuple[str, ...]
    thread: str | None = None
    """The member's thread; only the strategies of generation 1 have one."""


def names(items: Sequence[str]) -> str:
    """Return names as text: the first ten, then how many more there are."""
    return first_names(items, most=10)


def counts(pairs: Iterable[tuple[str, int]]) -> str:
    """Return `c0 3, c1 2, …` as text."""
    return names([f"{name} {count:,}" for name, count in pairs])


def partitions(number: int) -> str:
    """Return `1 partition`, or `2 partitions` and so on."""
    return f"{number:,} partition" if number == 1 else f"{number:,} partitions"


def consecutive(topic: str, share: range) -> str:
    """Return consecutive partitions as `t-3 to t-5`."""
    return f"{topic}-{share[0]}" if len(share) == 1 else f"{topic}-{share[0]} to {topic}-{share[-1]}"
