"""Format strings as kcat has them, and JSON that can be read back."""

from pathlib import Path

import click
import msgspec
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients import ConsumerRecord
from odradek.model import ConfigurationError
from odradek.values.record_formats import formatter, json_formatter, record_of_json, unescape
from odradek.values.value_formats import show_text, shower

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


def test_json_has_kafkas_names_and_text_with_a_mark_where_it_is_base64() -> None:
    line = json_formatter()(RECORD._replace(value=b"\xff\xfe", headers=(("a", b"1"), ("b", None), ("c", b"\x80"))))
    assert line == (
        b'{"topic":"t","partition":3,"offset":42,"timestamp":1700000000000,"key":"key",'
        b'"value":"//4=","value_encoding":"base64","headers":[{"key":"a","value":"1"},{"key":"b","value":null},'
        b'{"key":"c","value":"gA==","value_encoding":"base64"}],"leader_epoch":5}\n'
    )


maybe_bytes = st.none() | st.binary(max_size=50) | st.text(max_size=20).map(str.encode)


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple),
    timestamp=st.integers(-1, 2**62),
    formats=st.tuples(*[st.sampled_from(["text", "base64"])] * 2),
)
def test_printed_json_can_be_produced_again(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
    formats: tuple[str, str],
) -> None:
    record = ConsumerRecord("t", 1, 2, timestamp, key, value, headers, 0)
    shows = [shower(name, None, option="value") for name in formats]
    again = record_of_json(json_formatter(*shows)(record))
    assert (again.key, again.value, again.headers) == (key, value, headers)
    assert (again.partition, again.timestamp_ms) == (1, timestamp)


SHOW_JSON = shower("json", None, option="value")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a": 1.50,\n "b": [12345678901234567890123]}', b'"value":{"a":1.50,"b":[12345678901234567890123]},'),
        (b"null", b'"value":null,"value_encoding":"json"'),
        (b'"text"', b'"value":"text","value_encoding":"json"'),
        (None, b'"value":null,"headers"'),
    ],
)
def test_json_in_a_value_is_embedded_and_read_back(value: bytes | None, shown: bytes) -> None:
    line = json_formatter(show_text, SHOW_JSON)(RECORD._replace(value=value))
    assert shown in line
    compact = None if value is None else value.replace(b" ", b"").replace(b"\n", b"")
    assert record_of_json(line).value == compact


@pytest.mark.parametrize("value", [b"plain", b"", b"NaN", b"\xff", b"[" * 100_000, b'"\\ud800"', b'{"a":1} x'])
def test_a_value_that_is_not_json_is_shown_with_the_reason_and_read_back(value: bytes) -> None:
    line = json_formatter(show_text, SHOW_JSON)(RECORD._replace(value=value))
    assert b'"value_error":"' in line
    assert record_of_json(line).value == value


def test_a_value_without_a_mark_is_in_the_format_that_the_caller_names() -> None:
    assert record_of_json(b'{"value":"dGV4dA=="}', value_format="base64").value == b"text"
    assert record_of_json(b'{"value":{"a": 1}}', value_format="json").value == b'{"a": 1}'
    assert record_of_json(b'{"value":null}', value_format="json").value is None


def test_a_value_in_avro_or_protobuf_is_an_object_or_else_has_the_reason(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}')
    show = shower("avro", str(schema), option="value")
    assert show(b"\x0a").fields("value") == {"value": msgspec.Raw(b'{"id":5}'), "value_encoding": "avro"}
    assert "after the Avro record" in str(show(b"\x0a\x0a").error)
    assert show(None).content is None
    assert shower("confluent-avro", str(schema), option="value")(b"\0\0\0\0\7\x0a").error is None
    descriptor = tmp_path / "order.desc"
    field = descriptor_pb2.FieldDescriptorProto(name="id", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    message = descriptor_pb2.DescriptorProto(name="Order", field=[field])
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3", message_type=[message])
    descriptor.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    show = shower("protobuf", f"{descriptor}:Order", option="value")
    assert show(b"\x08\x05").content == msgspec.Raw(b'{"id":5}')


@pytest.mark.parametrize(
    ("name", "schema", "said"),
    [
        ("avro", None, "needs --key-schema FILE"),
        ("protobuf", None, "needs --key-schema FILE:MESSAGE"),
        ("text", "x.avsc", "is for the formats avro and protobuf"),
        ("protobuf", "x.desc", "is not FILE:MESSAGE"),
        ("avro", "/nowhere/x.avsc", "can't read the schema"),
    ],
)
def test_a_format_without_its_schema_is_refused(name: str, schema: str | None, said: str) -> None:
    with pytest.raises((click.ClickException, ConfigurationError), match=said):
        shower(name, schema, option="key")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "object"),
        (b'{"value": 7}', "--value-format json writes it"),
        (b'{"value": "?", "value_encoding": "base64"}', "is not base64"),
        (b'{"value": "?", "value_encoding": "avro"}', "only text, json, base64 can be written"),
        (b'{"value": "", "partition": "1"}', "partition must be an integer"),
        (b'{"value": "", "headers": [{}]}', "no field 'key'"),
        (b'{"value": "", "headers": [{"key": "a", "valeu": "b"}]}', "did you mean 'value'"),
        (b'{"vlaue": "text"}', "did you mean 'value'"),
        (b'{"key": "k"}', "no field 'value'; a null is written as null"),
        (b'{"value": ' + b"[" * 100_000, "nested too deep"),
    ],
)
def test_a_json_line_that_is_not_a_record_is_refused_with_the_reason(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        record_of_json(line)


@given(st.binary(max_size=40))
def test_any_bytes_can_be_written_as_escapes(data: bytes) -> None:
    assert unescape("".join(f"\\x{byte:02x}" for byte in data)) == data
