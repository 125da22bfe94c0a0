"""Tables as a file or a pipe gets them."""

import pytest

from odradek.cli.common import print_table


def test_a_file_gets_aligned_columns_with_numbers_to_the_right_and_lines_that_are_not_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "x" * 500
    print_table(("TOPIC", "LAG", "HOST"), [("t", 5, None), (name, None, "h"), ("u", 1000, None)])
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC" + " " * 495 + "   LAG  HOST",
        "t" + " " * 499 + "     5  -",
        name + "     -  h",
        "u" + " " * 499 + "  1000  -",
    ]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "STATE"), [])
    assert capsys.readouterr().out == "GROUP  STATE\n"
