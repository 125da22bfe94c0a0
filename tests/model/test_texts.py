"""Names that strangers chose forge no line, no row and no order of letters where they are shown (X2)."""

import json
import re
from pathlib import Path

import pytest

from odradek import cli
from odradek.cli.common import json_line, say
from odradek.cli.tables import table_lines
from odradek.model.texts import one_line, several_lines

PRINTED = {
    *("__init__.py", "acls.py", "common.py", "page.py", "partitions/reassign.py", "pipeline/options.py"),
    *("pipeline/views.py", "serve.py", "tree_view.py", "up.py"),
}
"""Commands that print constants, addresses, JSON in ASCII, or what they have escaped."""
SHOWN = [
    ("plain", "plain"),
    ("ünïcode 主题 🎈", "ünïcode 主题 🎈"),
    ("no-break\u00a0space", "no-break\u00a0space"),
    ("a\nb", r"a\nb"),
    ("a\r\nb", r"a\r\nb"),
    ("tab\tbed", r"tab\tbed"),
    ("\x1b[31mred", r"\x1b[31mred"),
    ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
    ("bell\x07", r"bell\x07"),
    ("null\x00", r"null\x00"),
    ("delete\x7f", r"delete\x7f"),
    ("c1\x9b31m", r"c1\x9b31m"),
    ("line\u2028end", r"line\u2028end"),
    ("paragraph\u2029end", r"paragraph\u2029end"),
    ("\u202egnp.exe", r"\u202egnp.exe"),
    ("\u202ahidden\u202c", r"\u202ahidden\u202c"),
    ("isolate\u2066x\u2069", r"isolate\u2066x\u2069"),
    ("mark\u200fend", r"mark\u200fend"),
    ("arabic\u061cmark", r"arabic\u061cmark"),
    ("zero\u200bwidth", r"zero\u200bwidth"),
    ("joined\u200dletters", r"joined\u200dletters"),
    ("order\ufeffmark", r"order\ufeffmark"),
    ("soft\u00adhyphen", r"soft\xadhyphen"),
    ("half\ud800pair", r"half\ud800pair"),
    ("private\ue000", r"private\ue000"),
    ("tag\U000e0041", r"tag\U000e0041"),
]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_a_line_has_no_invisible_character(text: str, shown: str) -> None:
    assert one_line(text) == shown
    lines, _ = table_lines(("USER",), [(text,)], None)
    assert lines == ["USER", shown]


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_a_printed_line_has_no_invisible_character(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"group {text} is empty")
    say(text, is_remark=True)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"group {shown} is empty\n", f"{shown}\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" a", '" a"'), ("a ", '"a "'), (" ", '" "'), ("\u00a0a", '"\u00a0a"'), ("a\n", r'"a\n"'), ("a b", "a b")],
)  # fmt: skip
def test_a_cell_shows_blanks_at_its_ends(text: str, shown: str) -> None:
    assert table_lines(("USER", "N"), [(text, 1)], None)[0][1].rpartition(" ")[0].rstrip() == shown


def test_commands_print_what_is_no_constant_by_the_function_for_names() -> None:
    folder = Path(cli.__file__).parent
    echo = re.compile(r"""(?<![\w.])(?:click\.echo|print)\((?!\)|"[^"{]*"[,)])""")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if echo.search(path.read_text())}
    assert {each for each in found if not each.startswith(("lab/", "sim/"))} == PRINTED


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_json_has_no_invisible_character_and_the_same_value(text: str, shown: str) -> None:
    line = json_line({"user": text})
    assert json.loads(line) == {"user": text}
    assert one_line(line) == line


def test_several_lines_keep_their_ends_and_show_controls_as_symbols() -> None:
    assert several_lines("a\tb\nc\x1b[0m\u202e") == "a\tb\nc␛[0m\\u202e"
