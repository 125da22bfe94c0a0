"""Records of internal topics, decoded for people: plain values under the field names of their schemas."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Final
from uuid import UUID

from odradek.log.names import is_deleted_folder, parent_of, parse_folder, parse_stray_folder
from odradek.metadata.nodes import encode_topic_id
from odradek.model.values import dataclass
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.group_records import GROUP_RECORDS
from odradek.protocol.primitives import INT16
from odradek.protocol.record_types import KEY_LAYOUT, RecordTypes, UnknownKey
from odradek.protocol.schemas import Layout
from odradek.protocol.transaction_records import TRANSACTION_RECORDS

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
TYPES_BY_TOPIC: Final = {OFFSETS_TOPIC: GROUP_RECORDS, TRANSACTIONS_TOPIC: TRANSACTION_RECORDS}
_NO_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecord:
    """A record with the fields that its version has, and without tagged fields that have their default.

    `record_type` is None without a key, and `decoded_key` is None if the type is not known. `decode_error` says what
    could not be decoded. A tombstone has neither `decoded_value` nor an error.
    """

    record_type: int | None
    decoded_key: Mapping[str, object] | None = None
    value_version: int | None = None
    decoded_value: Mapping[str, object] | None = None
    decode_error: str | None = None


def record_types_of(path: str) -> RecordTypes | None:
    """Return the types of the records in a file, by the absolute path of the file; None if its topic has none."""
    folder = parent_of(path).rpartition("/")[2]
    partition = parse_folder(folder.rpartition(".")[0]) if is_deleted_folder(folder) else parse_stray_folder(folder)
    partition = partition or parse_folder(folder)
    return None if partition is None else TYPES_BY_TOPIC.get(partition.topic)


def decode_internal_record(types: RecordTypes, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode a record as far as that is possible."""
    if key is None or len(key) < INT16.size:
        return DecodedRecord(record_type=None, decode_error="the record has no key that names its type")
    (number,) = INT16.unpack_from(key)
    try:
        known, _ = types.decode(key, None)
    except MalformedMessageError as error:
        return DecodedRecord(record_type=number, decode_error=str(error))
    if isinstance(known, UnknownKey):
        return DecodedRecord(record_type=number, decode_error=f"unknown record type {number}")
    decoded_key = _plain_fields(known, KEY_LAYOUT)
    if value is None:
        return DecodedRecord(record_type=number, decoded_key=decoded_key)
    try:
        _, decoded = types.decode(key, value)
    except MalformedMessageError as error:
        return DecodedRecord(record_type=number, decoded_key=decoded_key, decode_error=str(error))
    (version,) = INT16.unpack_from(value)
    return DecodedRecord(
        record_type=number,
        decoded_key=decoded_key,
        value_version=version,
        decoded_value=_plain_fields(decoded, types.type_of(known).layout(version)),
    )


def _plain_fields(value: Any, layout: Layout) -> Mapping[str, object]:
    shown: dict[str, object] = {}
    for field in layout.fields(type(value)):
        content = getattr(value, field.name)
        if "tag" in field.metadata and content == field.default:
            continue
        if content is None and field.metadata.get("kafka_type") == "uuid":
            content = _NO_ID
        shown[field.name] = _plain(content, layout)
    return shown


def _plain(content: object, layout: Layout) -> object:
    if isinstance(content, tuple):
        return [_plain(each, layout) for each in content]
    if isinstance(content, UUID):
        return encode_topic_id(content)
    return _plain_fields(content, layout) if is_dataclass(content) else content
