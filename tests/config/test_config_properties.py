"""Java's properties format."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.peers.client_files import PROPERTIES
from odradek.config.load import load
from odradek.config.properties import decode_properties, parse_properties
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


# ---- References to secrets -------------------------------------------------------------------------------------------


def test_references_are_replaced_and_other_texts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "geheim}")
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfstreng\n")
    (tmp_path / "secrets.properties").write_text("a = 1\npassword = ${env:PASSWORD}\n")
    given = {
        "sasl.password": "${env:PASSWORD}",
        "sasl.jaas.config": 'x required password="${env:PASSWORD}" other="${vault:x}";',
        "ssl.key.password": f"${{dir:{tmp_path}:secret}}",
        "ssl.keystore.password": f"${{file:{tmp_path}/secrets.properties:password}}",
    }
    made = resolved(given)
    assert made == {
        "sasl.password": "geheim}",
        "sasl.jaas.config": 'x required password="geheim}" other="${vault:x}";',
        "ssl.key.password": "streng",
        "ssl.keystore.password": "${env:PASSWORD}",
    }
    assert repr(made) == "<sasl.password, sasl.jaas.config, ssl.key.password, ssl.keystore.password>"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "${env:NOT_SET_ANYWHERE}",
            r"sasl.password is \$\{env:NOT_SET_ANYWHERE\}, and there is no environment variable",
        ),
        ("${dir:/nowhere:secret}", "which can't be read: No such file"),
        ("${file:/nowhere:key}", "which can't be read: No such file"),
        ("${file:/dev/null:key}", "and there is no key in this file"),
        ("${dir::}", "can't be read"),
    ],
)
def test_a_reference_to_nothing_is_refused(reference: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolved({"sasl.password": reference})
