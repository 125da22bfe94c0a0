"""docs/from-the-texts.md: each name exists, each link leads somewhere, and the specification lists the rows."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.assignors import ASSIGNOR_NAMES
from odradek.cli import main
from odradek.model import ErrorCode
from odradek.partitioners import PARTITIONER_NAMES
from odradek.pipelines.config.examples import EXAMPLES
from odradek.protocol.api import ApiKey
from tests.docs.fenced_blocks import PAGES, ROOT
from tests.docs.test_names import KEYS, command_of

DOCS: Final = ROOT / "docs"
PAGE: Final = (DOCS / "from-the-texts.md").read_text()
TABLES: Final = {
    title: [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows.strip().splitlines()[2:]]
    for title, rows in re.findall(r"^## (.+)\n(.+(?:\n.+)*)", PAGE, re.MULTILINE)
}
"""Heading → the rows of its table."""
PUBLIC: Final = (
    "odradek.clients",
    "odradek.clients.blocking",
    "odradek.assignors",
    "odradek.partitioners",
    "odradek.model",
    "odradek.testing",
)
WORDS: Final = {row[0]: row for title, rows in TABLES.items() if len(rows[0]) == 3 for row in rows}
CODE: Final = re.compile(r"`([^`]+)`")


def _anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def _is_importable(name: str) -> bool:
    *places, last = name.split(".")
    for module in (".".join(places), *PUBLIC, *(f"{each}.{'.'.join(places)}" for each in PUBLIC)):
        head, _, class_name = module.rpartition(".")
        for path, attributes in ((module, [last]), (head, [class_name, last])):
            try:
                value: object = importlib.import_module(path) if path else None
            except ModuleNotFoundError:
                continue
            for attribute in attributes:
                value = getattr(value, attribute, None)
            if value is not None:
                return True
    return False


@pytest.mark.parametrize("row", WORDS.values(), ids=WORDS)
def test_each_name_of_a_row_exists(row: list[str]) -> None:
    """A name is a key, a node, a strategy, a request, an error, a pipeline's kind, or can be imported."""
    known = {*KEYS, *ASSIGNOR_NAMES, *PARTITIONER_NAMES, "__consumer_offsets"}
    known |= {error.name for error in ErrorCode}
    known |= {re.sub(r"_", "", api.name).lower() for api in ApiKey}
    known |= {f'kind = "{kind}"' for kind in EXAMPLES} | {f'consume_mode = "{mode}"' for mode in ("direct", "group")}
    nodes = (DOCS / "metadata-tree.md").read_text()
    for name in CODE.findall(row[1].replace("`callback=`", "")):
        if name.startswith("/"):
            assert f"`{name}`" in nodes, name
        else:
            assert name in known or name.lower() in known or _is_importable(name), name


@pytest.mark.parametrize("row", WORDS.values(), ids=WORDS)
def test_each_row_has_a_command_or_a_page_that_shows_it(row: list[str]) -> None:
    commands = [shlex.split(each)[1:] for each in CODE.findall(row[2]) if " " in each]
    assert commands or "](" in row[2]
    for words in commands:
        found, rest = command_of(words)
        assert len(found) > 1, words
        assert not hasattr(found[-1], "commands"), f"{words} needs {rest}"
        # The others need a cluster, or take long.
        if words[0] in ("lab", "pipeline") and words[1] not in ("generations", "play"):
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, result.output


def test_each_link_leads_to_a_heading() -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE):
        path = DOCS / (target or "from-the-texts.md")
        assert path.is_file(), target
        assert not anchor or anchor in _anchors(path), anchor


def test_the_specification_lists_the_rows() -> None:
    specification = (DOCS / "specification.md").read_text()
    listed = re.findall(
        r"^\| [\d, ]+ \| \[(.+)\]\(from-the-texts\.md#(\S+)\) \| (\d+) \|$", specification, re.MULTILINE
    )
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): len(rows) for title, rows in TABLES.items()}
    assert {anchor: int(count) for _, anchor, count in listed} == anchors


# ---- Sentences -------------------------------------------------------------------------------------------------------

CELL_WORDS: Final = 40


SENTENCE_WORDS: Final = 50


_BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)


_CODE: Final = re.compile(r"`[^`]*`")


def _is_long(text: str, words: int) -> bool:
    return len(text.split()) > words


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_cells_and_sentences_are_short(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text())
    rows = [_CODE.sub(lambda code: code[0].replace("|", "/"), row) for row in _ROW.findall(text)]
    assert [cell for row in rows for cell in row.split("|") if _is_long(cell, CELL_WORDS)] == []
    paragraphs = re.split(r"\n\s*\n|\n(?=- |\d+\. |#)", _ROW.sub("", text))
    sentences = [
        each for one in paragraphs for each in re.split(r"(?<=[.!?:])\s+(?=[A-Z`\[(*])", " ".join(one.split()))
    ]
    assert [sentence for sentence in sentences if _is_long(sentence, SENTENCE_WORDS)] == []
