"""The heat maps and the summary of a sweep's table."""

from math import isclose
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from lab_commands import lab
from sweeps import compute_here, rows_of_table, sweep_of

from odradek.lab.sweep.summary import means

pytest.importorskip("matplotlib", reason="the extra lab is not installed")

from odradek.lab.sweep.heat_maps import axes_of, draw, heat_map

TEXT = "strategy = ['range', 'sticky']\nmembers = [2, 1, 4]\npartitions = [10, 30]\nracks = [0, 3]\nseed = [0, 1]"


def test_the_summary_has_the_means_of_the_rows_that_are_not_refused(tmp_path: Path) -> None:
    sweep, results = compute_here(tmp_path, TEXT)
    (whole,) = means(results.table, sweep_of(tmp_path, TEXT.replace(", 'sticky'", "")), ["strategy"])
    rows = pq.read_table(tmp_path / "sweep" / "results" / "strategy=range").to_pylist()
    good = [row for row in rows if row["refused"] is None]
    assert (whole["scenarios"], whole["refused"]) == (len(rows), len(rows) - len(good))
    assert 0 < len(good) < len(rows)
    assert isclose(whole["moved"], sum(100 * row["moved"] / row["partitions"] for row in good) / len(good))
    assert isclose(whole["spread"], sum(row["most"] - row["fewest"] for row in good) / len(good))
    by_failure = means(results.table, sweep, ["failure", "members"])
    assert [(row["failure"], row["members"]) for row in by_failure] == [
        (failure, members) for failure in sweep.axes["failure"] for members in (1, 2, 4)
    ]
    assert sum(row["scenarios"] for row in by_failure) == len(rows_of_table(tmp_path / "sweep"))


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("", ("failure", "strategy")),
        ("failure = ['none']", ("strategy", "members")),
        ("members = [1, 2]\npartitions = [1, 2, 3]\nfailure = ['none']", ("partitions", "members")),
        ("members = [1, 2]\nheatmap = { x = 'skew' }\nfailure = ['none']", ("skew", "members")),
        ("members = [1, 2]\nheatmap = { y = 'strategy', x = 'seed' }", ("seed", "strategy")),
        ("members = [1, 2]\nheatmap = { y = 'failure' }", ("members", "failure")),
    ],
)
def test_the_axes_are_the_longest_unless_the_file_names_them(tmp_path: Path, text: str, axes: tuple[str, str]) -> None:
    assert axes_of(sweep_of(tmp_path, text)) == axes


def test_each_measure_has_a_picture_whose_panels_axes_and_numbers_are_labelled(tmp_path: Path) -> None:
    sweep, results = compute_here(tmp_path, TEXT)
    pictures = draw(sweep, results.table)
    assert {name.partition(".")[0] for name in pictures} == {"moved", "stopped", "idle", "spread", "local", "assign"}
    assert pictures == draw(sweep, results.table)
    assert pictures["moved.png"][:8] == b"\x89PNG\r\n\x1a\n"
    (cell,) = [
        row
        for row in means(results.table, sweep, ["failure", "members", "strategy"])
        if (row["failure"], row["members"], row["strategy"]) == ("member-joins", 4, "range")
    ]
    root = ElementTree.fromstring(pictures["moved.svg"])
    assert float(root.attrib["width"].removesuffix("pt")) >= 7 * 72
    assert root.tag.endswith("svg")
    figure = heat_map(sweep, means(results.table, sweep, ["failure", "members", "strategy"]), "moved")
    written = [text.get_text() for panel in figure.axes for text in panel.texts]
    assert f"{cell['moved']:.3g}" in written
    assert [panel.get_title() for panel in figure.axes][:2] == ["range", "sticky"]
    panel = figure.axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == list(sweep.axes["failure"])
    assert [label.get_text() for label in panel.get_yticklabels()] == ["1", "2", "4"]


def test_nothing_of_a_picture_lies_outside_of_it(tmp_path: Path) -> None:
    sweep, results = compute_here(tmp_path, TEXT)
    figure = heat_map(sweep, means(results.table, sweep, ["failure", "members", "strategy"]), "stopped")
    figure.draw_without_rendering()
    whole = figure.bbox
    labels: list[Any] = [figure._suptitle]
    for panel in figure.axes:
        labels += [
            *panel.get_xticklabels(),
            *panel.get_yticklabels(),
            panel.title,
            panel.xaxis.label,
            panel.yaxis.label,
        ]
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert len(boxes) > 10
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1 for box in boxes)


def test_an_axis_of_many_values_is_sampled_and_the_picture_says_so(tmp_path: Path) -> None:
    text = "strategy = ['range']\nmembers = { from = 1, to = 100 }\nfailure = ['none', 'member-joins']"
    sweep, results = compute_here(tmp_path, text)
    figure = heat_map(sweep, means(results.table, sweep, ["members", "failure", "strategy"]), "idle")
    assert "shown: 40 of 100 values of members" in figure._suptitle.get_text()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert (len(labels), labels[0], labels[-1]) == (40, "1", "100")


def test_a_measure_that_no_scenario_has_gets_no_picture(tmp_path: Path) -> None:
    sweep, results = compute_here(tmp_path, "strategy = ['range']\nfailure = ['none']\nmembers = [2, 3]")
    assert {name for name in draw(sweep, results.table) if name.startswith("local")} == set()


def test_the_command_draws_a_finished_sweep_again_without_spark(tmp_path: Path) -> None:
    compute_here(tmp_path, TEXT)
    table = lab("sweep", str(tmp_path / "sweep.toml"), "--by", "members")
    assert [line.split()[:2] for line in table.splitlines()] == [
        ["MEMBERS", "SCENARIOS"], ["1", "96"], ["2", "96"], ["4", "96"],
    ]  # fmt: skip
    pictures = {path.name for path in (tmp_path / "sweep" / "heatmaps").iterdir()}
    assert pictures >= {"moved.png", "moved.svg", "local.png", "assign.svg"}
