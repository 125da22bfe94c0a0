"""Pictures of the lab: nothing is cut, no text covers another, equal results give equal bytes, big ones say so."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from odradek.cli import main
from odradek.lab import Comparison, Timeline, case_of_texts, compare, run_strategy
from odradek.lab.costs import Change as Membership
from odradek.lab.costs import Cost, Costs, Generation
from odradek.lab.pictures import Chart, chart_of, picture
from odradek.lab.pictures.charts import BarPanel, Bars, Blocks, Lanes
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.views import assignment_chart, timelines_chart
from odradek.lab.timeline import Mark, Span
from odradek.lab.what_if import Change, what_if
from odradek.model import TopicPartition
from tests.lab.lab_commands import lab
from tests.lab.svg_texts import Shown

pytestmark = pytest.mark.long

LONG = "consumer-of-the-flights-$a$-departures-1-0f3e9c1a-5d52-4a57-9be2-4fd9ab0db7f1"


def assignment(topics: list[str], members: list[str], strategy: str = "range", **more: Any) -> Chart:
    case = case_of_texts(topics=topics, members=members, **more)
    return assignment_chart(run_strategy(case, strategy), case.owners())


def transition(topics: list[str], members: list[str], change: Change, strategy: str = "range") -> Chart:
    return chart_of(what_if(case_of_texts(topics=topics, members=members), strategy, change))


def costs(*sizes: int, changes: tuple[Membership, ...] = (Membership.JOINS,)) -> Costs:
    return Costs(
        costs=tuple(
            Cost(
                generation=generation,
                change=change,
                members=size,
                partitions=400,
                settled_s=2.0456,
                stopped_partition_s=12345.678,
                members_stopped=size,
                group_requests=123 * size,
                tree_reads=size * size,
                tree_writes=0,
                claims_refused=2,
            )
            for change in changes
            for size in sizes
            for generation in Generation
        ),
        timelines=(),
    )


def timeline(*, members: int = 3, partitions: int = 6, rebalances: int = 3, is_wall_time: bool = True) -> Timeline:
    """Members that pass all partitions on, one rebalance after another, each of 1.5 s in an hour."""
    start_ms = 1_700_000_000_000 if is_wall_time else 0
    spans, marks = [], []
    for number in range(rebalances):
        from_ms = start_ms + number * 3_600_000
        marks.append(Mark(from_ms=from_ms, to_ms=from_ms + 1_500, text=f"{LONG} joined (its text is long {LONG})"))
        for place in (TopicPartition("t", each) for each in range(partitions)):
            owner = f"{LONG}-{(place.partition + number) % members}"
            spans += [
                Span(partition=place, member=None, from_ms=from_ms, to_ms=from_ms + 1_500),
                Span(partition=place, member=owner, from_ms=from_ms + 1_500, to_ms=from_ms + 3_600_000),
            ]
    end_ms = start_ms + rebalances * 3_600_000
    return Timeline(
        title="group g", start_ms=start_ms, end_ms=end_ms, spans=tuple(spans), marks=tuple(marks),
        is_wall_time=is_wall_time, left_out=7,
    )  # fmt: skip


def charts() -> Iterator[Any]:
    everyone = ["t=12", "__u=5", *(f"topic-{number}=2" for number in range(9))]
    yield pytest.param(lambda: assignment(["t=5"], ["2"]), id="small")
    yield pytest.param(lambda: assignment(everyone, ["4"], "sticky", owned=["c0=t:0-3"]), id="many topics")
    yield pytest.param(lambda: assignment(["t=9"], [LONG, "$x$", "\N{SNOWMAN}\u4e2d", "2"]), id="long and odd names")
    yield pytest.param(lambda: assignment(["t=1600"], ["40"]), id="as many boxes as there may be")
    yield pytest.param(lambda: assignment(["t=12000"], ["12"]), id="counts")
    yield pytest.param(lambda: assignment(["t=12"], ["100000"]), id="a hundred thousand members")
    yield pytest.param(
        lambda: assignment(["t=100000"], [*(f"m{each}=t" for each in range(99)), "zz"]), id="counts of counts"
    )
    yield pytest.param(lambda: assignment(["t=9"], ["4"], "zookeeper-range", threads=["2"]), id="threads")
    yield pytest.param(lambda: chart_of(compare(case_of_texts(topics=["t=6"], members=["3"]))), id="compare")
    racks = case_of_texts(topics=["t=100000"], members=["4"], racks=["a,b"], replica_racks=["t=b,a"])
    yield pytest.param(lambda: chart_of(compare(racks, ["range", "zookeeper-roundrobin"])), id="compare large figures")
    few, many = Change(remove_members=("c0",)), Change(add_members=("3",))
    yield pytest.param(lambda: transition(["t=12"], ["4"], few, "cooperative-sticky"), id="what-if")
    yield pytest.param(lambda: transition(["t=12", "ubiquitous-flights=9"], ["4"], few), id="what-if of two topics")
    yield pytest.param(lambda: transition(["t=1200"], ["12"], many), id="what-if counts")
    yield pytest.param(lambda: transition(["t=1200"], ["1000"], many), id="what-if of a thousand members")
    yield pytest.param(lambda: chart_of(costs(10)), id="costs")
    yield pytest.param(lambda: chart_of(costs(10, changes=tuple(Membership))), id="costs of three changes")
    yield pytest.param(lambda: chart_of(costs(10, 50, 200, changes=tuple(Membership))), id="the herd effect")
    yield pytest.param(lambda: chart_of(timeline()), id="timeline")
    yield pytest.param(lambda: chart_of(timeline(rebalances=40)), id="forty rebalances")
    yield pytest.param(lambda: chart_of(timeline(members=200, partitions=300)), id="a timeline of many members")
    several = [timeline(is_wall_time=False, rebalances=1), timeline(is_wall_time=False, rebalances=1)]
    yield pytest.param(lambda: timelines_chart("one joins", several), id="timelines below each other")


CHARTS: Final = list(charts())
made: Final = functools.cache(lambda make: make())
"""Each chart is made once, for both tests."""


@pytest.mark.parametrize("chart", CHARTS)
def test_every_text_of_a_picture_is_inside_it_and_covers_no_other(chart: Callable[[], Chart]) -> None:
    shown = Shown(made(chart))
    assert len(shown.texts) > 4
    assert [text for text in shown.texts if not text.is_within(shown.width, shown.height)] == []
    ordered = sorted(shown.texts, key=lambda each: each.left)
    covered = []
    for index, text in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if other.left >= text.right - 1:
                break
            if abs(text.middle - other.middle) < (text.size + other.size) / 2 - 1.5:
                covered.append((text.text, other.text))
    assert covered == []


def test_each_lane_has_its_label_also_beside_a_short_gap() -> None:
    short = timeline(members=2, partitions=3, rebalances=1, is_wall_time=False)
    chart = timelines_chart("one joins", [short])
    texts = [text for text in Shown(chart).texts if text.size == 9]
    lanes = [lane for row in chart.panels[0].rows for lane in row.lanes]
    assert sorted(text.text for text in texts) == sorted(lane.label for lane in lanes for _ in lane.spans)
    assert [text.text for text in texts if text.is_gap] == ["0", "1", "2"]


def test_each_box_has_its_label_and_the_picture_becomes_wider_for_it() -> None:
    chart = transition(["t=320"], ["9"], Change(remove_members=("c0",)), "range")
    assert isinstance(chart, Blocks)
    shown = Shown(chart)
    labels = [text for text in shown.texts if text.size == 8]
    assert len(labels) == sum(len(row) for panel in chart.panels for row in panel.rows) == 640
    assert shown.width > 960


@pytest.mark.parametrize("chart", CHARTS)
def test_a_policy_that_forbids_inline_styles_allows_the_picture_of_a_page(chart: Callable[[], Chart]) -> None:
    for element in ElementTree.fromstring(draw(made(chart), sheet=False)).iter():
        assert element.tag.rpartition("}")[2] in ("svg", "rect", "polyline", "polygon", "circle", "text")
        assert "style" not in element.attrib


def test_a_hostile_name_stays_text() -> None:
    name = "</text><script>alert(1)</script>\x1b[31m\u202e"
    comparison = Bars(title=name, names=(name,), panels=(BarPanel(title=name, values=(1,)),))
    texts = [text.text for text in Shown(comparison).texts]
    assert "</text><script>alert(1)</script>\ufffd[31m\ufffd" in texts


def test_the_same_result_gives_the_same_bytes() -> None:
    first = picture(assignment(["t=5"], ["2"]))
    assert picture(assignment(["t=5"], ["2"])) == first
    assert first.startswith(b"<?xml")


def test_a_hundred_thousand_members_are_counted_and_the_picture_and_stderr_say_so(tmp_path: Path) -> None:
    from click.testing import CliRunner

    file = tmp_path / "many.svg"
    result = CliRunner().invoke(main, ["lab", "assign", "-t", "t=12", "-m", "100000", "--picture", str(file)])
    sentence = "100,000 members are too many to show each: the picture counts them by their number of partitions."
    assert sentence in result.stderr
    chart = assignment(["t=12"], ["100000"])
    assert isinstance(chart, Bars)
    assert chart.panels[0].values == (99_988, 12)
    assert sentence in [text.text for text in Shown(chart).texts]
    assert len(file.read_bytes()) < 100_000


def test_a_member_with_many_partitions_is_counted_not_drawn() -> None:
    small, large = assignment(["t=80"], ["2"]), assignment(["t=82"], ["2"])
    assert isinstance(small, Blocks)
    assert isinstance(large, Bars)
    assert "A member has 41 partitions" in large.notice


def test_a_timeline_of_too_many_members_says_how_many_it_shows() -> None:
    chart = chart_of(timeline(members=200, partitions=300))
    assert isinstance(chart, Lanes)
    assert "The first 30 of 200 members" in chart.notice
    assert len(chart.panels[0].rows) == 31
    assert "names no owners of 7 more partitions" in chart.notice


def test_partitions_that_move_and_those_that_only_stop_have_colours_of_their_own() -> None:
    chart = transition(["t=6"], ["3"], Change(remove_members=("c0",)))
    assert isinstance(chart, Blocks)
    after = {block.label: chart.legend[block.kind] for row in chart.panels[1].rows for block in row}
    assert after["0"] == "moves, is new, or is gone"
    assert after["5"] == "stops, its member keeps it"
    kept = transition(["t=6"], ["3"], Change(remove_members=("c0",)), "cooperative-sticky")
    assert isinstance(kept, Blocks)
    assert {block.kind for row in kept.panels[1].rows for block in row} == {0, 2}


def test_results_show_themselves_in_a_notebook() -> None:
    case = case_of_texts(topics=["t=6"], members=["3"])
    results = [
        run_strategy(case, "range"),
        compare(case),
        what_if(case, "range", Change(add_members=("1",))),
        timeline(),
        costs(10),
    ]
    for result in results:
        shown = result._repr_html_()  # type: ignore[attr-defined]
        assert shown.startswith("<svg")
        assert shown.rstrip().endswith("</svg>")


def test_wrong_files_and_nothing_to_draw_are_refused(tmp_path: Path) -> None:
    for name in ("a.pdf", "a.png"):
        sentence = lab("assign", "-t", "t=5", "-m", "2", "--picture", name, code=2)
        assert f"{name}: pictures are SVG, so let the name end in .svg" in sentence
    gone = tmp_path / "absent" / "a.svg"
    assert "No such file" in lab("assign", "-t", "t=5", "-m", "2", "--picture", str(gone), code=1)
    with pytest.raises(TypeError, match="no picture of a str"):
        chart_of("a")
    empty = Comparison(members=1, partitions=1, rows=())
    with pytest.raises(Exception, match="no strategy could share out"):
        chart_of(empty)
