"""Makes the chart of each result. A result too big for a picture becomes a summary, with a notice."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import singledispatch
from typing import Final

from odradek.lab.case import LabError
from odradek.lab.costs import Change, Cost, Costs
from odradek.lab.measures import Comparison, Measures
from odradek.lab.pictures.charts import (
    BarPanel,
    Bars,
    Block,
    BlockPanel,
    Blocks,
    Chart,
    LanePanel,
    Lanes,
    LinePanel,
    Lines,
)
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.lanes import lane_panel, lanes_notice
from odradek.lab.runs import Run
from odradek.lab.timeline import Timeline
from odradek.lab.what_if import Transition
from odradek.model import TopicPartition

MOST_ROWS: Final = 40
"""Limit of the rows in a picture; more would be too small to read."""
MOST_BLOCKS: Final = 40
"""Limit of the boxes in a row."""
_MOST_TOPICS: Final = 7
"""Limit of the topics with a colour of their own; the others share one."""
_BARS_OF_COUNTS: Final = 20
_OPERATIONS: Final = ("group_requests", "tree_reads", "tree_writes")

Owners = Mapping[TopicPartition, str]


@singledispatch
def chart_of(result: object) -> Chart:
    """Return the chart of a result of the lab. Raises `LabError` for an empty one, `TypeError` for another object."""
    raise TypeError(f"there is no picture of a {type(result).__name__}")


@chart_of.register
def _(run: Run) -> Chart:
    return assignment_chart(run)


@chart_of.register
def _(timeline: Timeline) -> Chart:
    return timelines_chart(timeline.title, [timeline])


def assignment_chart(run: Run, before: Owners | None = None) -> Blocks | Bars:
    """Return the chart of an assignment; a box is marked by `*` if its partition had another owner in `before`."""
    shares = run.settled if run.threads is None else run.threads
    noun = "members" if run.threads is None else "threads"
    title = f"{run.strategy}: {sum(map(len, shares.values())):,} partitions, {len(shares):,} {noun}"

    old = before or {}

    def is_new(name: str, place: TopicPartition) -> bool:
        member = name if run.threads is None else name.rpartition("-")[0]
        return bool(old) and old.get(place) != member

    heading = "partitions; * is new to its member" if old else "partitions"
    return holdings_chart(title, shares, noun, heading=heading, is_new=is_new)


def holdings_chart(
    title: str,
    shares: Mapping[str, Sequence[TopicPartition]],
    noun: str = "members",
    *,
    heading: str = "partitions",
    is_new: Callable[[str, TopicPartition], bool] = lambda _name, _place: False,
) -> Blocks | Bars:
    """Return the chart of the partitions that each member or thread has; a box of which `is_new` is marked by `*`."""
    if len(shares) > MOST_ROWS:
        return _histogram(title, {noun: shares}, noun)
    if _most(shares) > MOST_BLOCKS:
        counts = BarPanel(title="partitions", values=tuple(len(some) for some in shares.values()))
        notice = f"A member has {_most(shares):,} partitions, so the picture counts them instead of naming each."
        return Bars(title=title, names=tuple(shares), panels=(counts,), notice=notice)
    kinds, legend = _topic_kinds(shares.values())
    rows = tuple(
        tuple(
            Block(label=f"{place.partition}{'*' if is_new(name, place) else ''}", kind=kinds[place.topic])
            for place in sorted(some)
        )
        for name, some in shares.items()
    )
    return Blocks(title=title, names=tuple(shares), panels=(BlockPanel(title=heading, rows=rows),), legend=legend)


@chart_of.register
def comparison_chart(comparison: Comparison) -> Bars:
    """Return the chart of strategies side by side. Raises `LabError` if all refused the case."""
    rows = comparison.rows[:MOST_ROWS]
    if not rows:
        raise LabError("no strategy could share out this case, so there is no picture of them")
    panels = [
        _bars("fewest\npartitions", rows, lambda row: row.fewest),
        _bars("most\npartitions", rows, lambda row: row.most),
        _bars("members\nwithout any", rows, lambda row: row.idle),
        _bars("partitions\nthat move", rows, lambda row: row.moved),
        _bars("partitions\nthat stop", rows, lambda row: row.stopped),
    ]
    if any(row.local is not None for row in rows):
        panels.append(_bars("read in\nown rack", rows, lambda row: row.local))
    panels.append(_bars("rebalances", rows, lambda row: row.generations))
    return Bars(
        title=f"{comparison.partitions:,} partitions, {comparison.members:,} members: the strategies side by side",
        names=tuple(row.strategy for row in rows),
        panels=tuple(panels),
        notice=""
        if len(rows) == len(comparison.rows)
        else f"The first {len(rows)} of {len(comparison.rows)} strategies.",
    )


@chart_of.register
def transition_chart(made: Transition) -> Blocks | Bars:
    """Return the chart of a change: each member's partitions before and after it."""
    names = list(dict.fromkeys([*made.before, *made.run.settled]))
    before = {name: made.before.get(name, ()) for name in names}
    after = {name: made.run.settled.get(name, ()) for name in names}
    moved = sum(move.after is not None for move in made.moved)
    title = (
        f"{made.run.strategy}, {made.protocol.value} rebalance: {moved:,} partitions move, "
        f"{len(made.stopping_partitions):,} stop"
    )
    if len(names) > MOST_ROWS:
        return _histogram(title, {"members before": made.before, "members after": made.run.settled}, "members")
    if max(_most(before), _most(after)) > MOST_BLOCKS:
        gives, gets = Counter(move.before for move in made.moves), Counter(move.after for move in made.moves)
        panels = [
            BarPanel(title="partitions before", values=tuple(len(before[name]) for name in names)),
            BarPanel(title="gives up", values=tuple(gives[name] for name in names)),
            BarPanel(title="gets", values=tuple(gets[name] for name in names)),
            BarPanel(title="partitions after", values=tuple(len(after[name]) for name in names)),
        ]
        most = max(_most(before), _most(after))
        notice = f"A member has {most:,} partitions, so the picture counts them instead of naming each."
        return Bars(title=title, names=tuple(names), panels=tuple(panels), notice=notice)
    moving, stopping = {move.partition for move in made.moves}, set(made.stopping_partitions)
    several = len({place.topic for some in (*before.values(), *after.values()) for place in some}) > 1

    def rows(shares: Mapping[str, Sequence[TopicPartition]]) -> tuple[tuple[Block, ...], ...]:
        return tuple(
            tuple(
                Block(
                    label=f"{place.topic}-{place.partition}" if several else str(place.partition),
                    kind=2 if place in moving else 1 if place in stopping else 0,
                )
                for place in sorted(shares[name])
            )
            for name in names
        )

    return Blocks(
        title=title,
        names=tuple(names),
        panels=(BlockPanel(title="before", rows=rows(before)), BlockPanel(title="after", rows=rows(after))),
        legend=("is read all the time", "stops, its member keeps it", "moves, is new, or is gone"),
    )


@chart_of.register
def costs_chart(made: Costs) -> Bars | Lines:
    """Return the chart of a change's costs in each generation: bars, or lines if there are several group sizes."""
    if not made.costs:
        raise LabError("there are no costs to draw")
    sizes = sorted({cost.members for cost in made.costs})
    changes = list(dict.fromkeys(cost.change for cost in made.costs))
    if len(sizes) > 1:
        return _growth(made.costs, sizes)
    generations = list(dict.fromkeys(cost.generation for cost in made.costs))
    several = len(changes) > 1

    def panel(title: str, value: str) -> BarPanel:
        return BarPanel(title=title, values=tuple(round(getattr(cost, value), 2) for cost in made.costs))

    return Bars(
        title=f"{sizes[0]:,} members, {made.costs[0].partitions:,} partitions: {', '.join(changes)}",
        names=tuple(f"{cost.change}: {cost.generation}" if several else str(cost.generation) for cost in made.costs),
        panels=(
            panel("settled\nafter s", "settled_s"),
            panel("stopped,\npartition-s", "stopped_partition_s"),
            panel("members\nthat stop", "members_stopped"),
            panel("requests\nto brokers", "group_requests"),
            panel("reads of\nthe tree", "tree_reads"),
            panel("writes of\nthe tree", "tree_writes"),
            panel("claims\nrefused", "claims_refused"),
        ),
        kinds=tuple(generations.index(cost.generation) for cost in made.costs),
    )


def _growth(costs: Sequence[Cost], sizes: Sequence[int]) -> Lines:
    """Return the chart of the herd effect: the costs of each change in each generation over the group size."""
    generations = list(dict.fromkeys(cost.generation for cost in costs))
    changes = list(dict.fromkeys(cost.change for cost in costs))
    by_key = {(cost.change, cost.generation, cost.members): cost for cost in costs}

    def panel(change: Change, title: str, *values: str) -> LinePanel:
        return LinePanel(
            title=title,
            values=tuple(
                tuple(sum(getattr(by_key[change, generation, size], value) for value in values) for size in sizes)
                for generation in generations
            ),
        )

    return Lines(
        title=f"The herd effect: {', '.join(changes)}; {costs[0].partitions:,} partitions",
        x_label="members",
        x=tuple(sizes),
        series=tuple(map(str, generations)),
        rows=tuple(
            (
                panel(change, f"{change}:\nmembers that stop", "members_stopped"),
                panel(change, "requests to brokers, reads\nand writes of the tree", *_OPERATIONS),
                panel(change, "partition-seconds\nwithout an owner", "stopped_partition_s"),
            )
            for change in changes
        ),
    )


def timelines_chart(title: str, timelines: Sequence[Timeline]) -> Lanes:
    """Return the chart of timelines below each other: a row for each member, red rows for gaps."""
    panels: list[LanePanel] = [lane_panel(timeline, len(timelines)) for timeline in timelines]
    notices = dict.fromkeys(filter(None, map(lanes_notice, timelines)))
    return Lanes(title=title, panels=tuple(panels), notice=" ".join(notices))


def _histogram(title: str, groups: Mapping[str, Mapping[str, Sized]], noun: str) -> Bars:
    """Return the chart of how many members or threads have how many partitions."""
    counters = {name: Counter(map(len, shares.values())) for name, shares in groups.items()}
    counts = sorted({count for counter in counters.values() for count in counter})
    width = max(1, -(-(counts[-1] - counts[0] + 1) // _BARS_OF_COUNTS)) if counts else 1
    starts = sorted({counts[0] + (count - counts[0]) // width * width for count in counts})
    total = max(counter.total() for counter in counters.values())
    return Bars(
        title=title,
        names=tuple(
            f"{start:,} partition{'' if start == 1 else 's'}" if width == 1 else f"{start:,} to {start + width - 1:,}"
            for start in starts
        ),
        panels=tuple(
            BarPanel(title=name, values=tuple(sum(counter[start + more] for more in range(width)) for start in starts))
            for name, counter in counters.items()
        ),
        notice=f"{total:,} {noun} are too many to show each: the picture counts them by their number of partitions.",
    )


def _bars(title: str, rows: Iterable[Measures], value: Callable[[Measures], int | None]) -> BarPanel:
    return BarPanel(title=title, values=tuple(value(row) for row in rows))


def _most(shares: Mapping[str, Sized]) -> int:
    return max(map(len, shares.values()), default=0)


def _topic_kinds(shares: Iterable[Iterable[TopicPartition]]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the colour number of each topic, and the legend."""
    topics = sorted({place.topic for some in shares for place in some})
    kinds = {topic: min(number, _MOST_TOPICS) for number, topic in enumerate(topics)}
    more = len(topics) - _MOST_TOPICS
    return kinds, (*topics[:_MOST_TOPICS], *([f"{more:,} more topics"] if more > 0 else []))


def check_file(name: str) -> None:
    """Raise `LabError` for a file name that does not end in `.svg`."""
    if not name.lower().endswith(".svg"):
        raise LabError(
            f"{name}: pictures are SVG, so let the name end in .svg; a browser shows, prints and converts it"
        )


def picture(chart: Chart) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{draw(chart)}\n'.encode()


def html(result: object) -> str:
    """Return a result's picture for a notebook."""
    return draw(chart_of(result))
