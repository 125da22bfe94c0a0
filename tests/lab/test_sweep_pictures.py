"""The heat maps and the summary of a sweep's table."""

from math import isclose
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lab_commands import lab
from svg_texts import Shown
from sweeps import compute_here, rows_of_table, sweep_of

from odradek.lab.sweep.heat_maps import axes_of, draw, heat_map
from odradek.lab.sweep.summary import means

pytestmark = pytest.mark.long

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
    rows = means(results.table, sweep, ["failure", "members", "strategy"])
    (cell,) = [row for row in rows if (row["failure"], row["members"], row["strategy"]) == ("member-joins", 4, "range")]
    chart = heat_map(sweep, rows, "moved")
    shown = Shown(chart)
    texts = [text.text for text in shown.texts]
    assert {f"{cell['moved']:.3g}", "range", "sticky", "1", "2", "4", "failure", "members"} <= {*texts}
    assert shown.turned == 2 * list(sweep.axes["failure"])
    assert chart.panels[0].values[2][chart.columns.index("member-joins")] == cell["moved"]
    assert all(text.is_within(shown.width, shown.height) for text in shown.texts)


def test_an_axis_of_many_values_is_sampled_and_the_picture_says_so(tmp_path: Path) -> None:
    text = "strategy = ['range']\nmembers = { from = 1, to = 100 }\nfailure = ['none', 'member-joins']"
    sweep, results = compute_here(tmp_path, text)
    chart = heat_map(sweep, means(results.table, sweep, ["members", "failure", "strategy"]), "idle")
    assert chart.notice == "Shown: 40 of 100 values of members."
    assert (len(chart.columns), chart.columns[0], chart.columns[-1]) == (40, "1", "100")


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
    assert pictures >= {"moved.svg", "local.svg", "assign.svg"}
