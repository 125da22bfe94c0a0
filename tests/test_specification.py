"""Citations of `docs/specification.md` lead to it, and each of its rows has tests that name it."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "specification.md").read_text()
SECTIONS: Final = {f"SPEC {number}" for number in re.findall(r"^## (\d+)\.", PAGE, re.MULTILINE)}
ROWS: Final = {
    row: re.findall(r"`((?:tests|conformance)/[^`]+)`", tests)
    for row, tests in re.findall(r"^\| ([MX]\d+) \|.*\|([^|]*)\|$", PAGE, re.MULTILINE)
}
CITATION: Final = re.compile(r"\bSPEC \d+|\bDESIGN \d+|(?<![\w.{/-])M\d+(?=[.,:;)] )")


def test_every_citation_of_the_specification_leads_to_a_section_or_row():
    lost = [
        f"{path.relative_to(ROOT)}: {citation}"
        for folder in ("src", "tests", "conformance", "bench", "demo", "examples", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md"}
        for citation in CITATION.findall(path.read_text())
        if citation not in SECTIONS | ROWS.keys()
    ]
    assert not lost


def test_the_specification_has_its_rows():
    assert list(ROWS) == [*(f"M{number}" for number in range(1, 13)), "X1", "X2", "X3", "X4"]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_specification_has_tests_that_name_it(row):
    assert ROWS[row]
    for folder in ROWS[row]:
        assert any(re.search(rf"\b{row}\b", path.read_text()) for path in (ROOT / folder).rglob("test_*.py")), folder


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_that_need_python_alone_show_each_row(row):
    """`make test` leaves out what is `long` or `needs` a component."""
    files = [path.read_text() for folder in ROWS[row] for path in (ROOT / folder).rglob("test_*.py")]
    left_out = re.compile(r"^(pytestmark = |    )\[?pytest\.mark\.(long|needs)\b", re.MULTILINE)
    assert any(re.search(rf"\b{row}\b", text) and not left_out.search(text) for text in files)


EXAMPLES: Final = re.findall(
    r"^\| (\d) \| [^|]+ \| \[[^\]]+\]\(([^)#]+)#?([^)]*)\) \| `([^`]+)` \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize(("section", "page", "place", "command"), EXAMPLES)
def test_a_worked_example_is_on_its_page_and_its_command_exists(section: str, page: str, place: str, command: str):
    text = (ROOT / "docs" / page).read_text()
    heads = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.M)]
    assert not place or place in heads
    if found := re.fullmatch(r"python -m pytest (\S+) -k (\w+)", command):
        assert any(found[2] in path.stem + path.read_text() for path in (ROOT / found[1]).rglob("test_*.py"))
    elif found := re.match(r"python -m (examples)\.(\w+) ", command):
        assert command in (ROOT / found[1] / f"{found[2]}.py").read_text()
    else:
        assert command in text


def test_each_section_from_2_to_9_has_a_worked_example():
    assert {section for section, *_ in EXAMPLES} == set("23456789")
