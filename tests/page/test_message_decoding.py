"""How the page shows the bytes of keys and values, and what its masks hide."""

import msgspec
import pytest

from odradek.model import ConfigurationError
from odradek.model.texts import several_lines
from odradek.page.messages.decoding import MOST_NODES, decode
from odradek.page.messages.masking import MASKED, Masks
from odradek.page.messages.reading import shown, text_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "tombstone"),
        (b"", "text"),
        (b"hello", "text"),
        (b"42", "json"),
        (b'{"a": 1}', "json"),
        (b"[1, 2]", "json"),
        (b'{"a": 1', "text"),
        (msgspec.msgpack.encode({"a": [1, None, 2.5]}), "msgpack"),
        (b"\x00\x00\x00\x00\x07\x02\xff", "hex"),
        (b"\xff\xfe\x00", "hex"),
        (b"\x00\x00\x00\x05text", "hex"),
    ],
)
def test_the_format_of_bytes_is_guessed(data: bytes | None, expected: str) -> None:
    assert decode(data).format == ("text" if data == b"42" else expected)


def test_bytes_of_a_schema_registry_name_their_schema() -> None:
    assert "schema 7" in decode(b"\x00\x00\x00\x00\x07\x02\xff").error


def test_a_chosen_format_that_does_not_fit_is_replaced_by_the_guess_and_says_why() -> None:
    found = decode(b"hello", "json")
    assert (found.format, found.text) == ("text", "hello")
    assert found.error.startswith("not shown as json")


def test_deep_nesting_is_shown_as_text() -> None:
    assert decode(b"[" * 100_000 + b"]" * 100_000).format == "text"


def test_a_dump_has_the_first_bytes_of_a_large_value() -> None:
    found = decode(b"\xff\x00" * 1_000_000)
    assert found.size_bytes == 2_000_000
    assert found.text.endswith("\n…")
    assert len(found.text) < 400_000


def test_a_tree_of_too_many_values_is_shown_as_text() -> None:
    found = decode(msgspec.json.encode(list(range(MOST_NODES))))
    assert not found.has_tree
    assert found.text.startswith("[0,1,2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\nü", "plain\ttext\nü"),
        ("\x1b[31mred", "␛[31mred"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\x9b", "\\x9b"),
    ],
)
def test_invisible_characters_are_shown_as_escapes(text: str, expected: str) -> None:
    assert several_lines(text) == expected


def test_hex_has_offsets_and_letters() -> None:
    assert decode(bytes(range(0x41, 0x53)), "hex").text.splitlines() == [
        "00000000  41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP",
        "00000010  51 52                                            QR",
    ]


MASKS = Masks(["password", "/[0-9]{16}/"])
SECRET = msgspec.json.encode(
    {"user": "ann", "login": {"Password": "x1"}, "cards": ["4111111111111111", 4111111111111111]}
)


def test_masks_hide_fields_by_name_at_every_depth_and_texts_by_pattern() -> None:
    assert shown(SECRET, "guess", MASKS).tree == {
        "user": "ann", "login": {"Password": MASKED}, "cards": [MASKED, MASKED],
    }  # fmt: skip


@pytest.mark.parametrize("chosen", ["text", "hex", "json", "msgpack", "guess"])
def test_no_format_goes_round_the_masks(chosen: str) -> None:
    text = text_of(shown(SECRET, chosen, MASKS))
    assert "x1" not in text
    assert "4111" not in text
    assert "78 31" not in text


def test_bytes_without_a_format_are_hidden_by_masks() -> None:
    assert shown(b"\xffpassword=x1", "guess", MASKS).text == MASKED


def test_json_that_is_too_large_for_a_tree_is_hidden_by_masks_of_fields() -> None:
    large = msgspec.json.encode({"password": "x1", "rest": list(range(MOST_NODES))})
    assert shown(large, "guess", MASKS).text == MASKED


@pytest.mark.parametrize(
    "data",
    [
        b'{"user": "ann", "password": "x1"',
        b'{"password": "x1"} and more',
        b"PASSWORD=x1",
        b"<password>x1</password>",
        b'"\\u0070assword=x1"',
        b"p%61ssword=x1",
        b'{"event": "{\\"password\\": \\"x1\\"}"}',
        b'["password: x1"]',
        msgspec.msgpack.encode({"raw": b'{"password": "x1"}'}),
    ],
)
def test_a_text_that_may_have_a_masked_field_is_hidden(data: bytes) -> None:
    for chosen in ("guess", "json", "text"):
        assert "x1" not in text_of(shown(data, chosen, MASKS))


def test_masks_of_fields_show_plain_texts() -> None:
    assert shown(b"customer-17, passwordless: 2026-01-31T23:59", "guess", MASKS).text.startswith("customer-17")
    assert Masks(["/[0-9]{16}/"]).text('{"a": "<b>"}') == '{"a": "<b>"}'


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(ConfigurationError, match="regular expression '\\(' is wrong"):
        Masks(["/(/"])


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 300 + b"]" * 300,
        msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(5, b"x" * 6000)}),
        b"\x81\x92\x01\x02\x01",
    ],
    ids=["deep", "extension", "array as a name"],
)
def test_a_value_beyond_the_tree_becomes_text(data: bytes) -> None:
    found = decode(data)
    assert found.is_container
    assert not found.has_tree
    assert found.text


def test_patterns_hide_texts_in_names_of_fields() -> None:
    assert Masks(["/[0-9]{16}/"]).apply(decode(b'{"4111111111111111": 1}')).tree == {MASKED: 1}


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (b"line\n" * 100, "guess", "text"),
        (b'{"a": "' + b"x" * 500 + b'"}', "guess", "json"),
        (b'{"a": ' + b"x" * 500, "guess", "text"),
        (b"[" + b"1," * 100 + b"1]", "text", "text"),
        (bytes(500), "guess", "hex"),
        (b"\xff" * 500, "guess", "hex"),
        (b"line\n" * 100, "json", "text"),
    ],
)
def test_the_beginning_of_a_large_value_is_that_of_the_whole(data: bytes, name: str, kind: str) -> None:
    head, whole = decode(data, name, most=16), decode(data, name)
    assert head.format == whole.format == kind
    assert (head.size_bytes, head.is_container, head.error) == (len(data), whole.is_container, whole.error)
    if kind != "hex" and not head.error:
        assert head.text == data[:17].decode()
