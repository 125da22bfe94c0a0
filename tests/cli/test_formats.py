"""Format strings as kcat has them, and JSON that can be read back."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.formats import formatter, json_formatter, record_of_json, unescape
from odradek.clients import ConsumerRecord

RECORD = ConsumerRecord("t", 3, 42, 1_700_000_000_000, b"key", b"value", (("a", b"1"), ("b", None)), 5)
EMPTY = RECORD._replace(key=None, value=None, headers=())


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        (r"%t %p %o %k %s\n", b"t 3 42 key value\n"),
        (r"%T %K %S", b"1700000000000 3 5"),
        (r"%h", b"a=1,b="),
        (r"100%% of %s", b"100% of value"),
        (r"\t\r\n\\\x41\e\0", b"\t\r\n\\A\x1b\x00"),
        ("plain", b"plain"),
        ("", b""),
        ("über %s", "über value".encode()),
    ],
)
def test_a_format_string_formats_a_record(template: str, printed: bytes) -> None:
    assert formatter(template)(RECORD) == printed


def test_a_null_has_length_minus_one_and_prints_as_nothing_by_default() -> None:
    assert formatter("[%k|%s|%K|%S|%h]")(EMPTY) == b"[||-1|-1|]"
    assert formatter("[%k|%s]", null=b"NULL")(EMPTY) == b"[NULL|NULL]"


@pytest.mark.parametrize("template", ["%q", "%", r"\q", r"\x4", "text\\"])
def test_a_template_with_an_unknown_letter_is_refused(template: str) -> None:
    with pytest.raises(click.BadParameter):
        formatter(template)


def test_json_has_kafkas_names_and_bytes_as_base64() -> None:
    assert json_formatter(RECORD) == (
        b'{"topic":"t","partition":3,"offset":42,"timestamp":1700000000000,"key":"a2V5","value":"dmFsdWU=",'
        b'"headers":[{"key":"a","value":"MQ=="},{"key":"b","value":null}],"leader_epoch":5}\n'
    )


maybe_bytes = st.none() | st.binary(max_size=50)


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple),
    timestamp=st.integers(-1, 2**62),
)
def test_printed_json_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...], timestamp: int
) -> None:
    record = ConsumerRecord("t", 1, 2, timestamp, key, value, headers, 0)
    again = record_of_json(json_formatter(record))
    assert (again.key, again.value, again.headers) == (key, value, headers)
    assert (again.partition, again.timestamp_ms) == (1, timestamp)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"value": 7}',
        b'{"value": "?"}',
        b'{"partition": "1"}',
        b'{"headers": [{}]}',
    ],
)
def test_a_json_line_that_is_not_a_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        record_of_json(line)


@given(st.binary(max_size=40))
def test_any_bytes_can_be_written_as_escapes(data: bytes) -> None:
    assert unescape("".join(f"\\x{byte:02x}" for byte in data)) == data
