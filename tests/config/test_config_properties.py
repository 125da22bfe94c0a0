"""Java's properties format."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.peers.client_files import PROPERTIES
from odradek.config import decode_properties, load, parse_properties
from odradek.config.secrets import resolved
from odradek.model import ConfigurationError


@pytest.mark.parametrize("text", PROPERTIES)
def test_lines_are_read_as_java_reads_them(text: str) -> None:
    if PROPERTIES[text] is None:
        with pytest.raises(ConfigurationError, match="four hexadecimal digits"):
            parse_properties(text)
        return
    assert parse_properties(text) == PROPERTIES[text]


TEXT: Final = "log.dirs=/größe\nbroker.id=7\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("iso-8859-1"),
        b"\xef\xbb\xbf" + TEXT.encode("iso-8859-1"),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        b"\xff\xfe" + TEXT.encode("utf-16-le"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("ß", "\\u00df").encode("iso-8859-1"),
    ],
)
def test_every_reader_takes_files_of_any_editor(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.properties"
    file.write_bytes(data)
    assert decode_properties("f", data) == {"log.dirs": "/größe", "broker.id": "7"}
    assert load(str(file), {}).log_dirs == ("/größe",)
    assert resolved({"a": f"${{file:{file}:log.dirs}}"}) == {"a": "/größe"}


@pytest.mark.parametrize("data", [b"a=1\0\n", TEXT.encode("utf-16-le"), b"\xfe\xed\xfe\xed\0\0\0\2"])
def test_a_file_that_is_no_text_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"store\.jks is not UTF-8 or ISO 8859-1 text"):
        decode_properties("store.jks", data)


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
