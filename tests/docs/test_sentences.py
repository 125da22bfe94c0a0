"""Cells of tables and sentences of README.md and docs/*.md are short enough to be read once."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.fenced_blocks import PAGES

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
