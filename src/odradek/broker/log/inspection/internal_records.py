"""Decodes records of internal topics for `odradek log dump`: plain values by the field names of their schemas.

As in Kafka's dump, the subscriptions and assignments in a group's record, opaque bytes to coordinators, are decoded if
the group's protocol type is `consumer`.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from odradek.broker.log.names import is_deleted_folder, parent_of, parse_folder, parse_stray_folder
from odradek.metadata.nodes import encode_topic_id
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE, VERSION
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import GROUP_RECORDS, GroupMetadataValue
from odradek.protocol.internal_records.record_types import KEY_LAYOUT, RecordTypes, UnknownKey
from odradek.protocol.internal_records.transaction_records import TRANSACTION_RECORDS
from odradek.protocol.messages.schemas import Decoder, Layout
from odradek.protocol.primitives import DECODE_ERRORS, INT16

TYPES_BY_TOPIC: Final = {OFFSETS_TOPIC: GROUP_RECORDS, TRANSACTIONS_TOPIC: TRANSACTION_RECORDS}
_NO_ID: Final = UUID(int=0)
_EMBEDDED: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
"""Field of a member → kio's class of its content."""


class DecodedRecord(Struct, frozen=True, kw_only=True):
    """The fields of a record's version, except tagged fields with their default value.

    `record_type` is None without a key, `decoded_key` None for an unknown type, `decoded_value` None for a tombstone.
    `decode_error` says why a part could not be decoded.
    """

    record_type: int | None
    decoded_key: Mapping[str, object] | None = None
    value_version: int | None = None
    decoded_value: Mapping[str, object] | None = None
    decode_error: str | None = None


def record_types_of(path: str) -> RecordTypes | None:
    """Return the record types of the internal topic of the file at the absolute `path`, or None."""
    folder = parent_of(path).rpartition("/")[2]
    partition = parse_folder(folder.rpartition(".")[0]) if is_deleted_folder(folder) else parse_stray_folder(folder)
    partition = partition or parse_folder(folder)
    return None if partition is None else TYPES_BY_TOPIC.get(partition.topic)


def decode_internal_record(types: RecordTypes, key: bytes | None, value: bytes | None) -> DecodedRecord:
    """Decode a record; parts that cannot be decoded are None, with a `decode_error`."""
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
    decoded_value = _plain_fields(decoded, types.type_of(known).layout(version))
    if isinstance(decoded, GroupMetadataValue) and decoded.protocol_type == PROTOCOL_TYPE:
        decoded_value["members"] = [
            {name: _embedded(name, each) if name in _EMBEDDED else each for name, each in member.items()}
            for member in decoded_value["members"]
        ]
    return DecodedRecord(
        record_type=number, decoded_key=decoded_key, value_version=version, decoded_value=decoded_value
    )


def _embedded(name: str, data: bytes) -> object:
    """Return the fields of a subscription or assignment; `data` itself if it cannot be decoded."""
    try:
        (version,) = INT16.unpack_from(data)
        if not 0 <= version <= VERSION:
            return data
        content, _ = _embedded_decoder(name, version)(data, INT16.size)
    except (*DECODE_ERRORS, OverflowError, MalformedMessageError):
        return data
    return _plain_fields(content, Layout(flexible=False))


@cache
def _embedded_decoder(name: str, version: int) -> Decoder:
    from odradek.protocol.messages.decoder import compile_decoder

    module = import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
    return compile_decoder(getattr(module, _EMBEDDED[name]))


def _plain_fields(value: Any, layout: Layout) -> dict[str, Any]:
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
