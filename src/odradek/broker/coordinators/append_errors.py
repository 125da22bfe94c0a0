"""Maps errors of appends to an internal topic to the errors of coordinators' responses."""

from typing import Final

from odradek.model import ErrorCode, KafkaError

_RESPONSE_ERRORS: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
RESIGNED: Final = (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition)
"""Errors of a partition that this broker no longer leads."""
TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


def response_error(error: KafkaError) -> KafkaError:
    """Return the response error for an append error. NOT_COORDINATOR makes clients look for another coordinator."""
    return KafkaError(_RESPONSE_ERRORS.get(error.code, error.code), str(error))
