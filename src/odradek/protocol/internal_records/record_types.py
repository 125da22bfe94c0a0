"""Encodes and decodes keys and values of internal topics, from dataclasses that declare their types and versions.

```
key    type int16, fields of the key                   never flexible
value  version int16, fields of that version           null: a tombstone
```
A value's class has the fields of all its versions; `"versions": "3+"` in a field's metadata gives the versions that
have the field, and others decode its default. Unknown tagged fields are skipped (KIP-915). Codecs are compiled at the
first use of a type and version.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from odradek.model import Buffer
from odradek.protocol.errors import UnknownRecordVersionError
from odradek.protocol.messages.schemas import Decoder, Layout, RecordEncoder
from odradek.protocol.primitives import DECODE_ERRORS, INT16, malformed

KEY_LAYOUT: Final = Layout(version=0, flexible=False)
_NEVER: Final = 1 << 15


class RecordType(Struct, frozen=True, kw_only=True):
    """The classes of a record's key and value. `number` is Kafka's `apiKey`; versions start at 0."""

    number: int
    key: type
    value: type
    last_version: int = 0
    flexible_from: int = _NEVER
    writes: int = 0
    """The version in which values are encoded by default."""

    def layout(self, version: int) -> Layout:
        """Return the layout of a value of this version. Raises `UnknownRecordVersionError` for an unknown one."""
        if not 0 <= version <= self.last_version:
            raise UnknownRecordVersionError(
                f"{self.value.__name__} has version {version}; this release knows 0 to {self.last_version}"
            )
        return Layout(version=version, flexible=version >= self.flexible_from)


class UnknownKey(Struct, frozen=True, kw_only=True):
    """A key of an unknown type, written by a newer release or for another kind of group."""

    type: int


class RecordTypes:
    """The record types of one topic. If several have the same key class, the last one is written."""

    def __init__(self, *types: RecordType) -> None:
        self._types = {each.number: each for each in types}
        self._type_of = {each.key: each for each in types}
        self._key_decoders: dict[int, Decoder] = {}
        self._key_encoders: dict[type, RecordEncoder] = {}
        self._value_decoders: dict[tuple[int, int], Decoder] = {}
        self._value_encoders: dict[tuple[int, int], RecordEncoder] = {}

    def __iter__(self) -> Iterator[RecordType]:
        return iter(self._types.values())

    def encode(self, key: object, value: object | None, version: int | None = None) -> tuple[bytes, bytes | None]:
        """Encode a key and its value, in the version that Kafka writes unless `version` is given.

        Fields that the version lacks are not written. A value of None is a tombstone.
        """
        return self.encode_key(key), None if value is None else self.encode_value(type(key), value, version)

    def encode_key(self, key: object) -> bytes:
        encode = self._key_encoders.get(type(key)) or self._compile_key_encoder(type(key))
        return encode(key)

    def encode_value(self, key_type: type, value: object, version: int | None = None) -> bytes:
        """Encode the value of a `key_type`, in the version that Kafka writes unless `version` is given."""
        kind = self._type_of[key_type]
        number_and_version = kind.number, kind.writes if version is None else version
        encode = self._value_encoders.get(number_and_version) or self._compile_value_encoder(*number_and_version)
        return encode(value)

    def decode(self, key: Buffer, value: Buffer | None) -> tuple[Any, Any]:
        """Decode a key and its value; return `(UnknownKey, None)` for an unknown type. A value of None is a tombstone.

        Raises `MalformedMessageError` for malformed bytes, and its subclass `UnknownRecordVersionError` for a value of
        an unknown version.
        """
        part = "key"
        try:
            (number,) = INT16.unpack_from(key)
            decode_key = self._key_decoders.get(number)
            if decode_key is None:
                if number not in self._types:
                    return UnknownKey(type=number), None
                decode_key = self._compile_key_decoder(number)
            decoded, _ = decode_key(key, 2)
            if value is None:
                return decoded, None
            part = "value"
            number_and_version = number, INT16.unpack_from(value)[0]
            decode_value = self._value_decoders.get(number_and_version) or self._compile_value_decoder(
                *number_and_version
            )
            return decoded, decode_value(value, 2)[0]
        except (*DECODE_ERRORS, OverflowError) as error:
            raise malformed(f"{part} of a record", error) from error

    def type_of(self, key: object) -> RecordType:
        return self._type_of[type(key)]

    def _compile_key_encoder(self, key_type: type) -> RecordEncoder:
        from odradek.protocol.messages.encoder import compile_record_encoder

        prefix = INT16.pack(self._type_of[key_type].number)
        encode = self._key_encoders[key_type] = compile_record_encoder(key_type, KEY_LAYOUT, prefix=prefix)
        return encode

    def _compile_key_decoder(self, number: int) -> Decoder:
        from odradek.protocol.messages.decoder import compile_record_decoder

        decode = self._key_decoders[number] = compile_record_decoder(self._types[number].key, KEY_LAYOUT)
        return decode

    def _compile_value_encoder(self, number: int, version: int) -> RecordEncoder:
        from odradek.protocol.messages.encoder import compile_record_encoder

        kind = self._types[number]
        encode = compile_record_encoder(kind.value, kind.layout(version), prefix=INT16.pack(version))
        self._value_encoders[number, version] = encode
        return encode

    def _compile_value_decoder(self, number: int, version: int) -> Decoder:
        from odradek.protocol.messages.decoder import compile_record_decoder

        kind = self._types[number]
        decode = self._value_decoders[number, version] = compile_record_decoder(kind.value, kind.layout(version))
        return decode
