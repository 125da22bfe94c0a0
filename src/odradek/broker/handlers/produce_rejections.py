"""Counts the errors of Produce, and rejected record batches by reason, as Kafka's validator does."""

from odradek.broker.counters import BrokerCounters, TopicTraffic
from odradek.broker.log.batch_contents import NO_KEY, InvalidRecordsError
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import HEADER_SIZE, MAGIC

_TOO_LARGE = frozenset({ErrorCode.message_too_large, ErrorCode.record_list_too_large})
_MAGIC_OFFSET = 16


def count_rejection(
    counters: BrokerCounters, traffic: TopicTraffic | None, error: KafkaError, records: memoryview | None
) -> None:
    """Count `error` in the topic's `traffic`, if any, and, unless `records` is None, why the batch was rejected."""
    counters.erred(ApiKey.PRODUCE, int(error.code))
    traffic = traffic or counters.elsewhere
    traffic.failed_produces += 1
    if records is None:
        return
    if error.code in _TOO_LARGE:
        traffic.bytes_rejected += len(records)
    elif error.code not in {
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.out_of_order_sequence_number,
    }:
        return
    elif isinstance(error, InvalidRecordsError) and any(each.message == NO_KEY for each in error.record_errors):
        counters.keyless_batches += 1
    elif len(records) >= HEADER_SIZE and records[_MAGIC_OFFSET] != MAGIC:
        counters.invalid_magic_batches += 1
    elif error.code == ErrorCode.corrupt_message:
        counters.invalid_crc_batches += 1
    else:
        counters.invalid_sequence_batches += 1
