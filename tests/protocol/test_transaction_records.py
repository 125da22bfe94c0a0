"""Records of `__transaction_state`, byte for byte as Kafka's message definitions have them."""

import dataclasses

import pytest

from odradek.protocol.errors import MalformedMessageError, UnknownRecordVersionError
from odradek.protocol.internal_records.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

KEY = TransactionLogKey(transactional_id="id")
KEY_BYTES = b"\0\0\0\2id"
VALUE = TransactionLogValue(
    producer_id=258,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="t", partition_ids=(0, 9)),),
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
)
START = b"\0\0\0\0\0\0\1\2\0\3\0\0\xea\x60\1"
TIMES = b"\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\4"


def test_a_transaction_is_written_in_the_flexible_version():
    encoded = b"\0\1" + START + b"\2\2t\3\0\0\0\0\0\0\0\x09\0" + TIMES + b"\0"
    assert TRANSACTION_RECORDS.encode(KEY, VALUE) == (KEY_BYTES, encoded)
    assert TRANSACTION_RECORDS.decode(KEY_BYTES, encoded) == (KEY, VALUE)


def test_a_transaction_of_version_0_has_no_tagged_fields():
    value = dataclasses.replace(VALUE, previous_producer_id=6)
    encoded = b"\0\0" + START + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\x09" + TIMES
    assert TRANSACTION_RECORDS.encode(KEY, value, 0) == (KEY_BYTES, encoded)
    assert TRANSACTION_RECORDS.decode(KEY_BYTES, encoded) == (KEY, VALUE)


def test_tagged_fields_come_in_the_order_of_their_tags():
    value = dataclasses.replace(
        VALUE,
        transaction_partitions=None,
        next_producer_epoch=2,
        client_transaction_version=2,
        next_producer_id=7,
        previous_producer_id=6,
    )
    tags = b"\4\0\x08" + bytes(7) + b"\6\1\x08" + bytes(7) + b"\7\2\2\0\2\3\2\0\2"
    encoded = b"\0\1" + START + b"\0" + TIMES + tags
    assert TRANSACTION_RECORDS.encode(KEY, value) == (KEY_BYTES, encoded)
    assert TRANSACTION_RECORDS.decode(KEY_BYTES, encoded) == (KEY, value)


def test_a_tombstone_has_no_value():
    assert TRANSACTION_RECORDS.decode(*TRANSACTION_RECORDS.encode(KEY, None)) == (KEY, None)


def test_a_later_version_is_distinguished_from_a_malformed_value():
    with pytest.raises(UnknownRecordVersionError, match="TransactionLogValue has version 2; this release knows 0 to 1"):
        TRANSACTION_RECORDS.decode(KEY_BYTES, b"\0\2" + START)
    with pytest.raises(MalformedMessageError, match="malformed value of a record: it ends too early"):
        TRANSACTION_RECORDS.decode(KEY_BYTES, b"\0\1" + START)
