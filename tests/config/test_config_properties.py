"""Java's properties format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config import parse_properties
from odradek.model import ConfigurationError


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb : 2\r\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n   \n  a = 1  \n", {"a": "1  "}),
        ("a = one,\\\n     two\n", {"a": "one,two"}),
        ("a = one \\", {"a": "one "}),
        ("a = c:\\\\\nb=2", {"a": "c:\\", "b": "2"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("a\\ b\\=c = 1", {"a b=c": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("alone", {"alone": ""}),
        ("a = b = c", {"a": "b = c"}),
        ("a = x\\\n# not a comment", {"a": "x# not a comment"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text, properties) -> None:
    assert parse_properties(text) == properties


def test_a_broken_escape_is_named() -> None:
    with pytest.raises(ConfigurationError, match="four hexadecimal digits"):
        parse_properties("a=\\u12")


def test_half_of_an_escaped_character_is_refused() -> None:
    assert parse_properties("a=\\ud83d\\ude00") == {"a": "😀"}
    with pytest.raises(ConfigurationError, match="half a character"):
        parse_properties("a=\\ud83d")


@given(st.text())
def test_any_text_is_read_or_refused(text) -> None:
    try:
        properties = parse_properties(text)
    except ConfigurationError:
        return
    assert all(isinstance(value, str) for value in properties.values())
