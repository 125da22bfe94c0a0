"""`odradek lab play`."""

from pathlib import Path

import pytest

from tests.lab.lab_commands import lab, lab_json

SCRIPT = "0:join,3:join,8:end"


def test_steps_of_each_generation_are_below_each_other_and_costs_beside_each_other(tmp_path: Path) -> None:
    picture = tmp_path / "play.svg"
    shown = lab("play", SCRIPT, "--messages", "--timeline", str(picture))
    assert shown.count("member-2 starts") == 4
    assert "[SyncGroup response broker-0 → member-2 (assignment=3, 4, 5)]" in shown
    assert [line.split()[0] for line in shown.splitlines()[-4:]] == ["1", "2", "2", "3"]
    assert picture.read_text().rstrip().endswith("</svg>")


def test_json_has_an_object_for_each_generation() -> None:
    (made,) = lab_json("play", SCRIPT, "--generation", "consumer", "--partitions", "2")
    assert made["generation"] == "3 consumer protocol"
    assert made["steps"][-1]["owners"] == {"0": "member-1", "1": "member-2"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("0:jump",), "is not a click"), ((SCRIPT, "--partitions", "13"), "use from 1 to 12")],
)
def test_the_error_is_one_line(arguments: tuple[str, ...], error: str) -> None:
    shown = lab("play", *arguments, code=2)
    assert error in shown
    assert len(shown.splitlines()) == 1
